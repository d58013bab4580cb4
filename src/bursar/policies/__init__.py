"""Who gets the next batch: one file a policy, all behind one small ask/tell interface."""

from bursar.policies.active import ActivePrioritization
from bursar.policies.ado import ADO
from bursar.policies.aimed import Aimed
from bursar.policies.aioli import Aioli
from bursar.policies.annealed import Annealed
from bursar.policies.base import Draw, Outcome, Policy
from bursar.policies.cycle import Cycle
from bursar.policies.doge import DoGE
from bursar.policies.exp3s import Exp3S
from bursar.policies.fixed import Fixed
from bursar.policies.odm import ODM
from bursar.policies.progress import Progress
from bursar.policies.random import Random
from bursar.policies.scaler import QuantileScaler, Scaler
from bursar.policies.schedule import Schedule
from bursar.policies.signals import (
    Alignment,
    DevLosses,
    DevScore,
    Gain,
    Loss,
    Signal,
    Skill,
    Uncertainty,
)
from bursar.policies.stratified import Stratified
from bursar.policies.task_size import TaskSize
from bursar.policies.temperature import Temperature
from bursar.policies.thompson import Thompson, Utility
from bursar.policies.told import ToldDraws
from bursar.policies.worth import Worth
from bursar.run_info import RunInfo

POLICIES: tuple[type[Policy], ...] = (
    Random,
    Aimed,
    Worth,
    TaskSize,
    Temperature,
    Annealed,
    Fixed,
    Cycle,
    Schedule,
    Exp3S,
    Thompson,
    ActivePrioritization,
    Progress,
    ODM,
    ADO,
    Aioli,
    DoGE,
)

__all__ = [
    "ADO",
    "ODM",
    "POLICIES",
    "ActivePrioritization",
    "Aimed",
    "Aioli",
    "Alignment",
    "Annealed",
    "Cycle",
    "DevLosses",
    "DevScore",
    "DoGE",
    "Draw",
    "Exp3S",
    "Fixed",
    "Gain",
    "Loss",
    "Outcome",
    "Policy",
    "Progress",
    "QuantileScaler",
    "Random",
    "RunInfo",
    "Scaler",
    "Schedule",
    "Signal",
    "Skill",
    "Stratified",
    "TaskSize",
    "Temperature",
    "Thompson",
    "ToldDraws",
    "Uncertainty",
    "Utility",
    "Worth",
]
