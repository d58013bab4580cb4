"""Every weighting of the library passes the suite that it ships."""

from taskmix.testing import WeightingConformance
from taskmix.weighting import DIW, WEIGHTINGS, AlphaVIL, DIWEveryTry, Joint, Single, Sweeps


class TestAlphaVIL(WeightingConformance):
    def make(self, tasks, target):
        return AlphaVIL(tasks, target)


class TestAlphaVILByThePaper(WeightingConformance):
    def make(self, tasks, target):
        return AlphaVIL.paper(tasks, target, fraction=0.25, joint=True, fresh=False)


class TestAlphaVILInSweeps(WeightingConformance):
    def make(self, tasks, target):
        return AlphaVIL(tasks, target, tuner=Sweeps(batch=16), weights_on="loss", start=0.5)


class TestDIW(WeightingConformance):
    def make(self, tasks, target):
        return DIW(tasks, target, tries=4)


class TestDIWEveryTry(WeightingConformance):
    def make(self, tasks, target):
        return DIWEveryTry(tasks, target, tries=4)


class TestJoint(WeightingConformance):
    def make(self, tasks, target):
        return Joint(tasks, target)


class TestSingle(WeightingConformance):
    def make(self, tasks, target):
        return Single(tasks, target)


def test_every_weighting_of_the_library_is_held_to_it():
    held = {name.removeprefix("Test") for name in globals() if name.startswith("Test")}
    assert {weighting.__name__ for weighting in WEIGHTINGS} <= held
