"""Learning curves from the scores of runs, and the mixture that they promise most for."""

from taskmix.offpolicy.curves.mixture import (
    FLOOR,
    Forecast,
    LearnedMixture,
    Promise,
    TaskForecast,
    learn_mixture,
)
from taskmix.offpolicy.curves.posterior import CurveSample, LearningCurves
from taskmix.offpolicy.curves.scored_run import Measure, RateSchedule, ScoredRun

__all__ = [
    "FLOOR",
    "CurveSample",
    "Forecast",
    "LearnedMixture",
    "LearningCurves",
    "Measure",
    "Promise",
    "RateSchedule",
    "ScoredRun",
    "TaskForecast",
    "learn_mixture",
]
