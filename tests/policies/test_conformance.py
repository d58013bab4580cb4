"""Every policy of the library passes the suite that it ships."""

from taskmix import (
    ADO,
    DUMP,
    ODM,
    SEC,
    ActivePrioritization,
    Aimed,
    Aioli,
    Annealed,
    Climb,
    Cycle,
    DoGE,
    Exp3S,
    Fixed,
    Learnability,
    Progress,
    Random,
    Schedule,
    Stratified,
    TaskSize,
    Temperature,
    Thompson,
)
from taskmix.policies import POLICIES
from taskmix.testing import PolicyConformance


def sizes(tasks):
    return {task: 10 * (i + 1) ** 2 for i, task in enumerate(tasks)}


def shares(tasks):
    total = sum(sizes(tasks).values())
    return {task: size / total for task, size in sizes(tasks).items()}


def shares_without_the_first(tasks):
    if len(tasks) == 1:
        return {tasks[0]: 1.0}
    return {tasks[0]: 0.0, **shares(tasks[1:])}


class TestRandom(PolicyConformance):
    def make(self, tasks):
        return Random(tasks)


class TestAimed(PolicyConformance):
    def make(self, tasks):
        return Aimed(tasks, tasks[: 1 + len(tasks) // 2])


class TestAimedWithRepetitions(PolicyConformance):
    def make(self, tasks):
        return Aimed(tasks, tasks[:1], epochs={task: 3.0 * k for k, task in enumerate(tasks)})


class TestTaskSize(PolicyConformance):
    def make(self, tasks):
        return TaskSize(sizes(tasks))


class TestTemperature(PolicyConformance):
    def make(self, tasks):
        return Temperature(sizes(tasks), temperature=2.0, cap=90)


class TestAnnealed(PolicyConformance):
    def make(self, tasks):
        return Annealed(sizes(tasks), epochs=5, steps_per_epoch=7)


class TestFixed(PolicyConformance):
    def make(self, tasks):
        return Fixed(shares_without_the_first(tasks))


class TestCycle(PolicyConformance):
    def make(self, tasks):
        return Cycle({task: i % 3 for i, task in enumerate(tasks, 1)})


class TestSchedule(PolicyConformance):
    def make(self, tasks):
        return Schedule([shares_without_the_first(tasks), shares(tasks)], steps=50)


class TestExp3S(PolicyConformance):
    def make(self, tasks):
        return Exp3S(tasks, eta=0.2)


class TestExp3SToTheLetter(PolicyConformance):
    def make(self, tasks):
        return Exp3S(tasks, eta=0.2, divide_by="rho")


class TestThompson(PolicyConformance):
    longest = 12  # a round costs a quadrature

    def make(self, tasks):
        return Thompson(tasks, primary=tasks[0], batches=3)


class TestActivePrioritization(PolicyConformance):
    def make(self, tasks):
        return ActivePrioritization(tasks, every=5, limit=0.2)


class TestProgress(PolicyConformance):
    def make(self, tasks):
        return Progress(tasks)


class TestODM(PolicyConformance):
    def make(self, tasks):
        return ODM(tasks, warmup=3)


class TestODMOfSums(PolicyConformance):
    def make(self, tasks):
        return ODM(tasks, rule="exp3", start=shares(tasks))


class TestODMOfPerplexities(PolicyConformance):
    def make(self, tasks):
        return ODM(tasks, rule="perplexity", smoothing=0.5)


class TestADO(PolicyConformance):
    def make(self, tasks):
        return ADO(tasks, every=37, ignored=3, prior=shares(tasks))


class TestAioli(PolicyConformance):
    def make(self, tasks):
        return Aioli(tasks, every=14, repeats=1, stretch=2)


class TestAioliOfThePaper(PolicyConformance):
    def make(self, tasks):
        return Aioli(tasks, every=1, repeats=2, stretch=1, ema=None, targets=tasks[:1])


class TestDoGE(PolicyConformance):
    def make(self, tasks):
        return DoGE(tasks, every=2, rate=0.3, epsilon=0.01)


class TestLearnability(PolicyConformance):
    def make(self, tasks):
        return Learnability(tasks, rate=0.4)


class TestSEC(PolicyConformance):
    def make(self, tasks):
        return SEC(tasks)


class TestDUMP(PolicyConformance):
    def make(self, tasks):
        return DUMP(tasks, window=3)


class TestClimb(PolicyConformance):
    longest = 12  # an outcome costs a quadrature

    def make(self, tasks):
        return Climb(tasks)


class TestProgressOfRewards(PolicyConformance):
    def make(self, tasks):
        return Progress(tasks, of="reward")


class TestStratified(PolicyConformance):
    def make(self, tasks):
        return Stratified(Fixed(shares_without_the_first(tasks)))


class TestStratifiedExp3S(PolicyConformance):
    longest = 15

    def make(self, tasks):
        return Stratified(Exp3S(tasks, eta=0.2))


def test_every_policy_of_the_library_is_held_to_it():
    held = {name.removeprefix("Test") for name in globals() if name.startswith("Test")}
    assert {policy.__name__ for policy in POLICIES} <= held


def test_names_are_different():
    assert len({policy.name for policy in POLICIES}) == len(POLICIES)
