"""Policies choose the task of the next batch, behind one ask/tell interface."""

from taskmix.policies.active import ActivePrioritization
from taskmix.policies.ado import ADO
from taskmix.policies.aimed import Aimed
from taskmix.policies.aioli import Aioli
from taskmix.policies.annealed import Annealed
from taskmix.policies.base import Policy
from taskmix.policies.climb import Climb
from taskmix.policies.constant import Fixed, Random, TaskSize, Temperature
from taskmix.policies.cycle import Cycle
from taskmix.policies.doge import DoGE
from taskmix.policies.dump import DUMP
from taskmix.policies.exp3s import Exp3S, QuantileScaler, Scaler
from taskmix.policies.learnability import Learnability
from taskmix.policies.odm import ODM
from taskmix.policies.progress import Progress
from taskmix.policies.schedule import Schedule
from taskmix.policies.sec import SEC
from taskmix.policies.signals import (
    Alignment,
    BatchScore,
    DevLosses,
    DevScore,
    Draw,
    Gain,
    Loss,
    Outcome,
    Rewards,
    Signal,
    Uncertainty,
)
from taskmix.policies.state import ToldDraws
from taskmix.policies.stratified import Stratified
from taskmix.policies.thompson import Thompson, Utility
from taskmix.run_info import RunInfo

POLICIES: tuple[type[Policy], ...] = (
    Random,
    Aimed,
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
    Learnability,
    SEC,
    DUMP,
    Climb,
)

__all__ = [
    "ADO",
    "DUMP",
    "ODM",
    "POLICIES",
    "SEC",
    "ActivePrioritization",
    "Aimed",
    "Aioli",
    "Alignment",
    "Annealed",
    "BatchScore",
    "Climb",
    "Cycle",
    "DevLosses",
    "DevScore",
    "DoGE",
    "Draw",
    "Exp3S",
    "Fixed",
    "Gain",
    "Learnability",
    "Loss",
    "Outcome",
    "Policy",
    "Progress",
    "QuantileScaler",
    "Random",
    "Rewards",
    "RunInfo",
    "Scaler",
    "Schedule",
    "Signal",
    "Stratified",
    "TaskSize",
    "Temperature",
    "Thompson",
    "ToldDraws",
    "Uncertainty",
    "Utility",
]
