"""Every selector of the library passes the suite that it ships."""

from taskmix.selection import SELECTORS, MTUncertainty
from taskmix.testing import SelectorConformance


class TestMTUncertainty(SelectorConformance):
    def make(self, tasks, batch):
        return MTUncertainty(tasks, batch)


class TestMTUncertaintyByThePaper(SelectorConformance):
    def make(self, tasks, batch):
        return MTUncertainty(tasks, batch, rule="paper")


class TestMTUncertaintyOfAPool(SelectorConformance):
    def make(self, tasks, batch):
        return MTUncertainty(tasks, batch, every=3, pool=2 * batch + batch, score="bald")


def test_every_selector_of_the_library_is_held_to_it():
    held = {name.removeprefix("Test") for name in globals() if name.startswith("Test")}
    assert {selector.__name__ for selector in SELECTORS} <= held
