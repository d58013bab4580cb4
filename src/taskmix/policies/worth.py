"""Worth: prefers the target tasks that are still improving."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from taskmix.policies.aimed import Aimed
from taskmix.policies.base import LARGEST_LOSS, bounded, numbers_of
from taskmix.policies.lines import KinkedLines
from taskmix.policies.signals import Draw, Outcome, Rewards, Signal, Skill
from taskmix.policies.state import Array
from taskmix.run_info import RunInfo

#: The threshold of a difference of slopes. Slopes are tested after every draw, so that a lower one
#: would often be passed by chance.
_STANDARD_ERRORS = 3.0
#: A low skill is measured again when the task has this many times as many draws.
_REMEASURE_AFTER = 1.5
#: The skill of a task is measured when its factor, the square in the formula, is below this.
_SLOWED = 0.9


class Worth(Aimed):
    """Draws like `Aimed`, but tasks that have stopped improving less often.

    A line with one kink is fitted to the likelihood s = exp(-loss) of each task's batches. Let a_k
    be the share of `Aimed`, b_k the rise of s per draw of the task since the kink, σ_k the standard
    error of b_k, and c_k the mean rise over all draws of the task. A task is in one of three
    states:

    - Rising: it keeps its share a_k.
    - Slowed: b_k is more than three standard errors below c_k. Its share decreases,

          p_k ∝ a_k min(1, (max(0, b_k) + 3 σ_k) / c_k)²

      A falling likelihood counts as constant: it is noise, or forgetting.
    - Waiting: after some draws, c_k is still below three standard errors. The waiting tasks
      redistribute their total share by their sizes n_k, p_k ∝ a_k √n_k, separately for the targets
      and the others: tasks that need many examples tend to have large data sets.

    A fraction `watch` of the draws uses a_k. A task always uses it from its second epoch on,
    because a low loss may then come from memorised examples.

    A plateau is not always the end of learning: the loss of a tagger is constant while it predicts
    the most frequent label everywhere. So the share of a slowed task decreases only if its `Skill`
    is at least `learned`. The skill is measured on few dev examples, only for slowed tasks whose
    batches have at least the likelihood `learned`, and again when the task's number of draws has
    grown by half.

    Args:
        tasks: the names of the tasks.
        targets: the target tasks; all if None. The default in a run file is the run's objective.
        rest: the total weight of the other tasks.
        epochs: E_k of each task; see `Aimed`. Sizes n_k are proportional to 1/E_k, and count as
            equal if an entry is missing.
        repeats: R* of `Aimed`; None if repeated examples are worth as much as new ones.
        steps: the number of draws in the budget, which determines the end of a task's first epoch;
            None if no task is repeated.
        watch: the fraction of the draws that uses the shares of `Aimed`.
        learned: the skill from which the share of a slowed task decreases; 0 measures no skill, as
            in a training loop that evaluates nothing.
        examples: the number of dev examples for the skill; all if None.
        of: `likelihood`; or `reward`, in reinforcement learning: then s is the mean reward of the
            completions, from 0 to 1, and the skill is the same number, which costs nothing.

    >>> from taskmix.rng import stream
    >>> policy, rng = Worth(["rising", "done"]), stream(1, "draws")
    >>> for step in range(100):
    ...     draw = policy.ask(rng)
    ...     drawn = policy.drawn[draw.index]
    ...     loss = 1.2 - 0.01 * (drawn if draw.task == "rising" else min(drawn, 20))
    ...     policy.tell(Outcome(draw, loss=loss, skill=0.8 if policy.due(draw) else None))
    >>> policy.probabilities().round(3).tolist()
    [0.949, 0.051]
    """

    name = "worth"
    _saved = ("_skills", "_measured")

    def __init__(
        self,
        tasks: Sequence[str],
        targets: Sequence[str] | None = None,
        rest: float = 0.05,
        epochs: Mapping[str, float] | None = None,
        repeats: float | None = 15.0,
        steps: int | None = None,
        watch: float = 0.05,
        learned: float = 0.25,
        examples: int | None = 100,
        of: Literal["likelihood", "reward"] = "likelihood",
    ) -> None:
        super().__init__(tasks, targets, rest, epochs, repeats)
        if not 0 < watch <= 1:
            raise ValueError(f"watch: expected a number above 0 and up to 1, found {watch}")
        if steps is not None and steps < 1:
            raise ValueError(f"steps: expected at least 1, found {steps}")
        if not 0 <= learned <= 1:
            raise ValueError(f"learned: expected a number from 0 to 1, found {learned}")
        if examples is not None and examples < 1:
            raise ValueError(f"examples: expected at least 1, found {examples}")
        if of not in ("likelihood", "reward"):
            raise ValueError(f"of: expected likelihood or reward, found {of!r}")
        self._of = of
        self._learned = learned
        if of == "reward":
            self.needs = frozenset({Rewards()})
        elif learned > 0:
            self.needs = frozenset({Skill(examples)})
        count = len(self.tasks)
        self._aimed = self._probabilities
        self._first_epoch = np.full(count, np.inf)  # draws in it
        if steps is not None:
            np.divide(steps, self._epochs, out=self._first_epoch, where=self._epochs > 0)
        self._root_sizes = np.ones(count)
        if self._epochs.all():
            self._root_sizes = (self._epochs.min() / self._epochs) ** 0.5
        self._waiting = np.zeros(count, dtype=np.bool_)
        self._watch = watch
        self._lines = KinkedLines(count)
        self._rising = np.ones(count)  # the factor of a_k, from 0 to 1
        self._skills = np.zeros(count)  # the highest that was measured
        self._measured = np.zeros(count, dtype=np.int64)  # the task's draws when it was measured
        self._share()

    @classmethod
    def for_run(cls, info: RunInfo, *more: Any, steps: int | None = None, **options: Any) -> Self:
        return super().for_run(info, *more, steps=info.steps if steps is None else steps, **options)

    def due(self, draw: Draw) -> frozenset[Signal]:
        if self._of == "reward":
            return self.needs
        k = draw.index
        slowed = self._rising[k] < _SLOWED and self._lines.levels[k] >= self._learned
        known = self._skills[k] >= self._learned or (
            self._lines.seen[k] < _REMEASURE_AFTER * self._measured[k]
        )
        return self.needs if slowed and not known else frozenset()

    def forgo(self, signals: Collection[Signal]) -> None:
        if self._of == "reward":
            super().forgo(signals)
        self._learned, self.needs = 0.0, frozenset()
        self._share()

    def tell(self, outcome: Outcome) -> None:
        draw, value = outcome.draw, self._value(outcome)
        skill = bounded(outcome.skill if self._of == "likelihood" else outcome.reward, 1.0)
        if skill is not None:
            self._skills[draw.index] = max(skill, self._skills[draw.index])
            self._measured[draw.index] = self._lines.seen[draw.index]
        if value is not None:
            self._lines.observe(draw.index, draw.number, value)
            self._judge(draw.index)
        self._share()

    def _value(self, outcome: Outcome) -> float | None:
        """Return s; None if it was not measured."""
        if self._of == "reward":
            reward = bounded(outcome.reward, 1.0)
            return None if reward is None else max(reward, 0.0)
        loss = bounded(outcome.loss, LARGEST_LOSS)
        # A density can have a loss below 0, that is a likelihood above 1; it counts as 1.
        return None if loss is None else math.exp(-max(loss, 0.0))

    def _judge(self, k: int) -> None:
        lines = self._lines
        overall, error = float(lines.overall[k]), float(lines.overall_errors[k])
        begun = overall > _STANDARD_ERRORS * error
        in_first_epoch = bool(lines.seen[k] < self._first_epoch[k])
        self._waiting[k] = in_first_epoch and error < math.inf and not begun
        self._rising[k] = 1.0
        if in_first_epoch and begun:
            slope = max(0.0, float(lines.slopes[k])) + _STANDARD_ERRORS * float(lines.errors[k])
            self._rising[k] = min(1.0, slope / overall) ** 2

    def _share(self) -> None:
        worth = self._aimed * self._kept()
        for group in (self._targets, ~self._targets):
            waiting = self._waiting & group
            share, rooted = worth[waiting].sum(), worth[waiting] * self._root_sizes[waiting]
            if share > 0:
                worth[waiting] = rooted * (share / rooted.sum())
        total = float(worth.sum())
        shares: Array = worth / total if total > 0 else self._aimed
        shares = self._watch * self._aimed + (1 - self._watch) * shares
        shares.setflags(write=False)
        self._probabilities = shares

    def _kept(self) -> Array:
        """Return the part of its share that each task keeps."""
        kept: Array = np.where(self._skills >= self._learned, self._rising, 1.0)
        return kept

    def diagnostics(self) -> dict[str, Any]:
        values = {"rising": self._rising, "skills": self._skills, "kept": self._kept()}
        return {name: self._named(by_task) for name, by_task in values.items()}

    @classmethod
    def explain(cls, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
        rising, skills, kept = (numbers_of(after.get(key)) for key in ("rising", "skills", "kept"))
        old_rising, old_kept = (numbers_of(before.get(key)) for key in ("rising", "kept"))
        sentences = []
        for task in rising:
            if not all(task in each for each in (kept, old_kept, old_rising)):
                continue
            skill = f"{skills.get(task, 0.0):.0%} of the way from guessing to perfect"
            if kept[task] < _SLOWED <= old_kept[task]:
                sentences.append(
                    f"{task} is drawn less: its loss falls more slowly, and its dev score is "
                    f"{skill}"
                )
            elif kept[task] >= _SLOWED > old_kept[task]:
                sentences.append(f"{task} is drawn more again: its loss falls faster")
            elif rising[task] < _SLOWED <= old_rising[task]:
                sentences.append(
                    f"{task} keeps its share though its loss falls more slowly: its dev score is "
                    f"only {skill}"
                )
        return sentences

    def _state(self) -> dict[str, Any]:
        return self._lines.state_dict() | super()._state()

    def _load(self, state: Mapping[str, Any]) -> None:
        self._lines.load_state_dict(state)
        super()._load(state)

    def _derive(self, state: Mapping[str, Any]) -> None:
        for k in range(len(self.tasks)):
            self._judge(k)
        self._share()
