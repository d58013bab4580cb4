"""Scores of eval sets, for policies that learn from them in somebody else's loop."""

import math
from pathlib import Path

import pytest

import taskmix
from taskmix.errors import UserError
from taskmix.journal import Step, read
from taskmix.mixing import EvalScore, Mixer, Tally

TASKS = ["done", "rising"]


def mixer(policy: taskmix.Policy, folder: Path | None = None) -> Mixer:
    journal = None if folder is None else folder / "journal.jsonl"
    return Mixer(policy, {"done": 40, "rising": 60}, 4, seed=1, journal=journal)


def train(mixer: Mixer, tally: Tally, draws: int = 60) -> list[str]:
    """Train two tasks of which one stops improving after 10 of its draws."""
    drawn = []
    for _, batch in zip(range(draws), mixer, strict=False):
        task, number = batch[0].task, batch[0].draw
        drawn.append(task)
        place = drawn.count(task)
        likelihood = 0.3 + 0.02 * (place if task == "rising" else min(place, 10))
        tally.add(number, -math.log(min(likelihood, 0.99)), len(batch))
        tally.settle()
    return drawn


def test_without_scores_worth_draws_as_with_learned_0_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain, other = mixer(taskmix.Worth(TASKS)), mixer(taskmix.Worth(TASKS, learned=0))
    tallies = Tally(plain), Tally(other)
    assert train(plain, tallies[0]) == train(other, tallies[1])
    assert plain.policy.probabilities()[0] < 0.3
    assert [record.message for record in caplog.records] == [
        "policy worth: goes on without Skill, not measured here"
    ]


@pytest.mark.parametrize(("score", "given_up"), [(0.9, True), (0.6, False)])
def test_worth_uses_the_skill_over_the_baseline(
    tmp_path: Path, score: float, given_up: bool
) -> None:
    """The share of a slowed task decreases if its skill is 0.25 or more."""
    mixture, asked = mixer(taskmix.Worth(TASKS), tmp_path), []

    def scored(examples: int | None) -> EvalScore:
        asked.append(examples)
        return EvalScore(score, baseline=0.5)

    train(mixture, Tally(mixture, dict.fromkeys(TASKS, scored)))
    skills = [step.skill for step in read(tmp_path / "journal.jsonl") if isinstance(step, Step)]
    measured = [skill for skill in skills if skill is not None]
    assert measured == pytest.approx([(score - 0.5) / 0.5] * len(asked))
    assert set(asked) == {100}
    assert (mixture.policy.probabilities()[0] < 0.3) == given_up


def test_thompson_learns_from_the_scores_of_its_primary(tmp_path: Path) -> None:
    mixture = mixer(taskmix.Thompson(TASKS, primary="rising"), tmp_path)
    scores = iter(range(1000))
    train(mixture, Tally(mixture, {"rising": lambda _: EvalScore(next(scores) / 1000)}))
    steps = [step for step in read(tmp_path / "journal.jsonl") if isinstance(step, Step)]
    told = [step.score for step in steps if step.score is not None]
    assert told == [n / 1000 for n in range(len(told))]
    assert len(told) > 1


def test_scores_of_some_tasks_are_no_skill(caplog: pytest.LogCaptureFixture) -> None:
    Tally(mixer(taskmix.Worth(TASKS)), {"done": lambda _: EvalScore(1.0)})
    assert "goes on without Skill" in caplog.text


def test_a_policy_around_worth_goes_on_without_scores_too() -> None:
    policy = taskmix.Stratified(taskmix.Worth(TASKS))
    Tally(mixer(policy))
    assert policy.needs == frozenset()


def test_scores_of_an_unknown_task_are_refused() -> None:
    with pytest.raises(UserError, match=r"^scorers: unknown task 'don'; did you mean 'done'"):
        Tally(mixer(taskmix.Worth(TASKS)), {"don": lambda _: EvalScore(1.0)})
