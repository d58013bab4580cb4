"""The policies that the bandit is usually asked about, each made for an environment."""

from collections.abc import Callable, Mapping

from taskmix.bandit.environment import Environment
from taskmix.policies import (
    ActivePrioritization,
    Exp3S,
    Policy,
    Progress,
    Random,
    Stratified,
    Thompson,
    Worth,
)

#: Makes a policy for an environment.
Maker = Callable[[Environment], Policy]


def random(environment: Environment) -> Policy:
    """Return the paper's RANDOM."""
    return Random(environment.tasks)


def oracle(environment: Environment) -> Policy:
    """Return the paper's ORACLE: independent draws from the distribution the arms were made for."""
    return environment.oracle_policy()


def oracle_stratified(environment: Environment) -> Policy:
    """Return the oracle without the luck of independent draws."""
    return Stratified(environment.oracle_policy())


def exp3s(environment: Environment) -> Policy:
    """Return the paper's EXP3.S, rewarded by the gain in log-likelihood."""
    return Exp3S(environment.tasks)


def thompson(environment: Environment) -> Policy:
    """Thompson sampling with the first arm as the primary: it cares for no other."""
    return Thompson(environment.tasks, primary=environment.tasks[0])


def active(environment: Environment) -> Policy:
    """Active prioritization, with 1 - score for the uncertainty of an arm."""
    return ActivePrioritization(environment.tasks, every=20)


def worth(environment: Environment) -> Policy:
    """Draws every arm alike until its own rise has slowed."""
    return Worth(environment.tasks)


def progress(environment: Environment) -> Policy:
    """Draws in proportion to progress."""
    return Progress(environment.tasks)


def progress_stratified(environment: Environment) -> Policy:
    """Return the same, without the luck of independent draws."""
    return Stratified(Progress(environment.tasks))


CONTENDERS: Mapping[str, Maker] = {
    make.__name__: make
    for make in (
        random,
        oracle,
        oracle_stratified,
        exp3s,
        thompson,
        active,
        worth,
        progress,
        progress_stratified,
    )
}
