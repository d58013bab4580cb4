"""The kits for selectors, weightings, kinds and sources catch what they are there for."""

import copy
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from taskmix.errors import UserError
from taskmix.selection import MTUncertainty, Selection
from taskmix.tasks.kinds import Classify
from taskmix.tasks.rows import TextRow
from taskmix.testing import (
    KindConformance,
    SelectorConformance,
    SourceConformance,
    WeightingConformance,
)
from taskmix.weighting import AlphaVIL, Joint

RESTORED_SELECTOR = "test_a_restored_copy_goes_on_as_the_selector_that_was_never_stopped"
RESTORED_WEIGHTING = "test_a_restored_copy_goes_on_as_the_weighting_that_was_never_stopped"
REQUESTS = "test_requests_are_well_formed_and_rounds_move_the_model"


class ForgetsItsTurn(MTUncertainty):
    """Prefers another task at every choice, and does not save which."""

    turn = 0

    def choose(self, scores):
        self.turn += 1
        favourite = self.tasks[self.turn % len(self.tasks)]
        return super().choose({t: s * (1 + 9 * (t == favourite)) for t, s in scores.items()})


class ForgetsWhatItAskedFor(MTUncertainty):
    """Chooses by the candidates that it asked for, and does not save them."""

    wanted = 0

    def candidates(self):
        wanted = super().candidates()
        self.wanted = wanted[self.tasks[0]]
        return wanted

    def choose(self, scores):
        first = self.tasks[0]
        return super().choose({**scores, first: scores[first] + self.wanted})


class ChoosesTwice(MTUncertainty):
    def choose(self, scores):
        return [
            Selection({t: p.repeat(2)[: len(p)] for t, p in step.chosen.items()}, step.candidates)
            for step in super().choose(scores)
        ]


class ChoosesTooMany(MTUncertainty):
    def choose(self, scores):
        counts = {task: len(of_task) for task, of_task in scores.items()}
        return [Selection({t: np.arange(n) for t, n in counts.items()}, counts)]


class TakesNoNumbers(MTUncertainty):
    def choose(self, scores):
        return super().choose({t: np.nan_to_num(s, posinf=0.0) for t, s in scores.items()})


@pytest.mark.parametrize(
    ("selector", "test"),
    [
        (ForgetsItsTurn, RESTORED_SELECTOR),
        (ForgetsWhatItAskedFor, RESTORED_SELECTOR),
        (ChoosesTwice, "test_choices_are_places_among_the_candidates"),
        (ChoosesTooMany, "test_choices_are_places_among_the_candidates"),
        (TakesNoNumbers, "test_scores_that_are_no_numbers_are_refused"),
    ],
)
def test_the_selector_kit_refuses(selector, test):
    class Kit(SelectorConformance):
        def make(self, tasks, batch):
            return selector(tasks, batch)

    with pytest.raises(AssertionError):
        getattr(Kit(), test)()


class SavesNothing(AlphaVIL):
    def _state(self):
        return {}

    def _load(self, state):
        pass


class ChangesItsMindMidway(Joint):
    """Counts a round when it begins."""

    rounds = 0

    def round(self, worker):
        self.rounds += 1
        return super().round(worker)

    def _state(self):
        return {"rounds": self.rounds}

    def _load(self, state):
        self.rounds = state["rounds"]


class KeepsBeforeItTrains(Joint):
    def round(self, worker):
        worker.keep()
        return super().round(worker)


class MixesBeforeItSeparates(Joint):
    def round(self, worker):
        worker.mix((0.5,) * len(self.tasks))
        return super().round(worker)


class WeighsTooFew(Joint):
    def round(self, worker):
        worker.together((1.0,) * (len(self.tasks) - 1))
        return super().round(worker)


class ScalesByNoNumber(Joint):
    def round(self, worker):
        worker.separate((float("nan"),) * len(self.tasks))
        return super().round(worker)


class KeepsNothing(Joint):
    def round(self, worker):
        return super().round(copy.deepcopy(worker))


class LendsItsWeights(Joint):
    def __init__(self, tasks, target):
        super().__init__(tasks, target)
        self.own = np.ones(len(tasks))

    def weights(self):
        return self.own


class ReportsOtherWeights(Joint):
    def round(self, worker):
        report = super().round(worker)
        return replace(report, weights=dict.fromkeys(self.tasks, 0.5))


@pytest.mark.parametrize(
    ("weighting", "test"),
    [
        (SavesNothing, RESTORED_WEIGHTING),
        (ChangesItsMindMidway, "test_a_round_that_was_broken_off_can_be_played_again"),
        (KeepsBeforeItTrains, REQUESTS),
        (MixesBeforeItSeparates, REQUESTS),
        (WeighsTooFew, REQUESTS),
        (ScalesByNoNumber, REQUESTS),
        (KeepsNothing, REQUESTS),
        (LendsItsWeights, "test_weights_are_numbers_from_zero_on"),
        (ReportsOtherWeights, "test_a_report_names_every_task"),
    ],
)
def test_the_weighting_kit_refuses(weighting, test):
    class Kit(WeightingConformance):
        def make(self, tasks, target):
            return weighting(tasks, target)

    with pytest.raises((AssertionError, UserError)):  # of numbers that a run refuses too
        getattr(Kit(), test)()


class ForgetsItsMarks(Classify):
    def spec(self):
        return {"kind": "classify", "labels": [*self.labels, "another"]}


class HasNoGradient(Classify):
    def loss(self, logits, batch):
        return super().loss(logits.detach(), batch) + 0 * logits.sum()


class IsNoDistribution(Classify):
    def distribution(self, logits, batch):
        return logits.float().sigmoid()


class OwnsNothing(Classify):
    def owners(self, batch):
        return torch.zeros(len(batch["labels"]), dtype=torch.long)


class LooksAtPadding(Classify):
    def predictions(self, logits, batch):
        return super().predictions(logits + batch["input_ids"].shape[1] * torch.eye(2)[0], batch)


class LooksAtLabels(Classify):
    def predictions(self, logits, batch):
        return super().predictions(logits + batch["labels"][:, None] * torch.eye(2)[0], batch)


class SkipsARow(Classify):
    def answers(self, raw, split, rows):
        return super().answers(raw, split, rows)[1:]


class ExpectsOtherThings(Classify):
    def baseline(self, train, split, rows):
        found = super().baseline(train, split, rows)
        return replace(found, expected=[0] * len(found.expected))


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (ForgetsItsMarks, "test_it_comes_back_from_its_spec"),
        (HasNoGradient, "test_the_loss_is_a_finite_number_with_a_gradient"),
        (IsNoDistribution, "test_a_distribution_is_one_of_each_decision"),
        (OwnsNothing, "test_a_distribution_is_one_of_each_decision"),
        (LooksAtPadding, "test_predictions_do_not_depend_on_how_items_are_batched"),
        (LooksAtLabels, "test_rows_without_labels_are_predicted_as_with_them"),
        (SkipsARow, "test_predictions_do_not_depend_on_how_items_are_batched"),
        (ExpectsOtherThings, "test_scores_stand_beside_one_expected_value_a_row"),
    ],
)
def test_the_kind_kit_refuses(kind, test):
    class Kit(KindConformance):
        def make(self):
            return kind(("no", "yes"))

        def rows(self, labelled):
            labels = ("no", "yes") if labelled else (None, None)
            words = ["the", "cat", "sat", "on", "a", "mat", "with", "one", "dog"]
            texts = {at: " ".join(words[at % 9 :] + words[: at % 4]) for at in range(1, 25)}
            return [TextRow(at, text, label=labels[at % 2]) for at, text in texts.items()]

    with pytest.raises(AssertionError):
        getattr(Kit(), test)()


@dataclass
class Memory:
    """A sound source of three rows."""

    last: str = "x"
    where: str = "memory"

    def content(self):
        return [TextRow(1, "one", label="a"), TextRow(2, "two"), TextRow(3, self.last)]

    def rows(self):
        return iter(self.content())

    def skips(self):
        return {}

    def fingerprint(self):
        return repr(self.content())


class ReadsOnce(Memory):
    def rows(self):
        self.left = getattr(self, "left", None) or self.content()
        while self.left:
            yield self.left.pop(0)


class GivesAList(Memory):
    def rows(self):
        return self.content()


class HasOneFingerprint(Memory):
    def fingerprint(self):
        return "memory"


class ChangesItsFingerprint(Memory):
    def fingerprint(self):
        self.asked = getattr(self, "asked", 0) + 1
        return f"{super().fingerprint()}, asked {self.asked} times"


class GoesBackwards(Memory):
    def content(self):
        return super().content()[::-1]


class MixesForms(Memory):
    def content(self):
        return [*super().content(), "a row"]


SOURCES = [
    (ReadsOnce, "test_a_reading_that_was_broken_off_leaves_nothing_behind"),
    (ReadsOnce, "test_two_readings_at_once_do_not_disturb_each_other"),
    (GivesAList, "test_two_readings_at_once_do_not_disturb_each_other"),
    (HasOneFingerprint, "test_another_content_has_another_fingerprint"),
    (ChangesItsFingerprint, "test_the_fingerprint_is_stable"),
    (GoesBackwards, "test_places_ascend"),
    (MixesForms, "test_rows_are_of_one_form_that_kinds_know"),
]


def source_kit(source):
    class Kit(SourceConformance):
        def make(self):
            return source()

        def other(self):
            return source("y")

    return Kit()


@pytest.mark.parametrize(("source", "test"), SOURCES)
def test_the_source_kit_refuses(source, test):
    with pytest.raises((AssertionError, ValueError)):
        getattr(source_kit(source), test)()


def test_a_sound_source_passes_whole():
    sound = source_kit(Memory)
    for name in dir(sound):
        if name.startswith("test_"):
            getattr(sound, name)()
