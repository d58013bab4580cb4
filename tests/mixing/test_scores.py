"""Scores of eval sets, for policies that learn from them in somebody else's loop."""

from pathlib import Path

import pytest

import taskmix
from taskmix.errors import UserError
from taskmix.journal import Step, read
from taskmix.mixing import Mixer, Tally

TASKS = ["done", "rising"]


def mixer(policy: taskmix.Policy, folder: Path | None = None) -> Mixer:
    journal = None if folder is None else folder / "journal.jsonl"
    return Mixer(policy, {"done": 40, "rising": 60}, 4, seed=1, journal=journal)


def train(mixer: Mixer, tally: Tally, draws: int = 60) -> None:
    for _, batch in zip(range(draws), mixer, strict=False):
        tally.add(batch[0].draw, 0.7, len(batch))
        tally.settle()


def test_thompson_learns_from_the_scores_of_its_primary(tmp_path: Path) -> None:
    mixture = mixer(taskmix.Thompson(TASKS, primary="rising"), tmp_path)
    scores = iter(range(1000))
    train(mixture, Tally(mixture, {"rising": lambda _: next(scores) / 1000}))
    steps = [step for step in read(tmp_path / "journal.jsonl") if isinstance(step, Step)]
    told = [step.score for step in steps if step.score is not None]
    assert told == [n / 1000 for n in range(len(told))]
    assert len(told) > 1


def test_scores_of_an_unknown_task_are_refused() -> None:
    with pytest.raises(UserError, match=r"^scorers: unknown task 'don'; did you mean 'done'"):
        Tally(mixer(taskmix.Random(TASKS)), {"don": lambda _: 1.0})
