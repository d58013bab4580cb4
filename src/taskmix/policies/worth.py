"""Worth: draws what counts, is new, and still has something to teach."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.aimed import Aimed
from taskmix.policies.base import LARGEST_LOSS, Draw, Outcome, Policy, bounded, known_tasks
from taskmix.policies.kinked_lines import KinkedLines
from taskmix.policies.signals import Signal, Skill
from taskmix.run_info import RunInfo

Array = NDArray[np.float64]

#: A slope may be this many standard errors above what was measured, and a task has begun to rise
#: where its rise so far is as many. It is looked at after every draw, and the kink is where it fits
#: best, so that chance alone would often pass a lower bar.
_CAUTION = 3.0
#: A skill that was too low is measured again after this many times as many draws of its task.
_LATER = 1.5
#: A task is worth measuring that would keep no more than this of its share.
_SLOWED = 0.9


class Worth(Policy):
    """Draws as `Aimed` does, less of what has stopped rising, and large before small.

    A batch is worth what its task counts, times what of it is new, times what it still teaches. The
    first two are the shares a_k of `Aimed`. For the third, the likelihood s = exp(-loss) of a
    task's batches has been rising by b_k, give or take σ_k, from one draw of it to the next since
    the draw where its slope changed most, and by c_k a draw over the run so far. No task's losses
    are compared with another's, which may be of another size. A task is in one of three states:

    - It rises, and keeps its share a_k.
    - It has slowed by more than three standard errors explain, and leaves draws to the others:

          p_k ∝ a_k min(1, (max(0, b_k) + 3 σ_k) / c_k)²

      A fall counts as standing still: it is luck, or what was forgotten meanwhile.
    - It has not begun to rise: after some draws, c_k is below three standard errors. It may need
      many more to begin, or may not begin within the budget. Its losses do not say which, but its
      size n_k gives a hint: a data set is large where a task takes many examples. So the tasks that
      have not begun divide what they have together by the roots of their sizes, p_k ∝ a_k √n_k,
      those that count and the others each among themselves.

    A part `watch` of the draws keeps to a_k. So does a task from its second epoch on: a low loss
    then says what is remembered, not what is left to learn, and `Aimed` has seen to its size.

    A plateau is not always the end. A tagger that has learned to name the commonest label looks
    done by its losses before its score has begun to rise. So a task that has slowed is let go only
    once its `Skill` is at least `learned`: that much of what there is above guessing. The skill is
    measured only of a task that would be let go, if the likelihood of its batches is at least
    `learned` too, on few dev examples, and again, as long as it is too low, whenever the task has
    been drawn half as often again. All else is the loss of batches that are trained on anyway.
    Where nobody measures a skill, no task is let go.

    Slopes come from lines with a kink through what a task's draws gave (`KinkedLines`).

    Args:
        tasks: the names of the tasks.
        targets: those that count; all if None. A run file's default is the run's objective.
        rest: the weight of the others together.
        epochs: by task, how often the budget would go through its examples if it got all of it; 0
            where it is missing. Sizes are as 1 / epochs, and count as equal where one is missing. A
            run file's default is what its budget says.
        repeats: after how many repetitions an example is worth 1/e of a new one; None for never.
        steps: the draws of the budget that `epochs` are for; None if no task is seen twice.
        watch: the part of the draws that does not go by what still rises.
        learned: the least skill of a task that is let go; 0 to go by losses alone, where nothing is
            measured.
        examples: how many dev examples a skill is measured on; all if None.

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
    ) -> None:
        super().__init__(tasks)
        if not 0 < watch <= 1:
            raise ValueError(f"watch: expected a number above 0 and up to 1, found {watch}")
        if steps is not None and steps < 1:
            raise ValueError(f"steps: expected at least 1, found {steps}")
        if not 0 <= learned <= 1:
            raise ValueError(f"learned: expected a number from 0 to 1, found {learned}")
        if examples is not None and examples < 1:
            raise ValueError(f"examples: expected at least 1, found {examples}")
        self._learned = learned
        if learned > 0:
            self.needs = frozenset({Skill(examples)})
        self._aimed = Aimed(self.tasks, targets, rest, epochs, repeats).probabilities()
        counts = np.array([(epochs or {}).get(task, 0.0) for task in self.tasks])
        self._first = np.full(len(self.tasks), np.inf)  # draws in a task's first epoch
        if steps is not None:
            np.divide(steps, counts, out=self._first, where=counts > 0)
        # Roots of the sizes, which are as 1 / epochs; all alike where one of them is not known.
        self._roots = (counts.min() / counts) ** 0.5 if counts.all() else np.ones(len(counts))
        scored = np.isin(self.tasks, known_tasks(targets, self.tasks, "targets"))
        self._groups = (scored, ~scored)
        self._waiting = np.zeros(len(self.tasks), dtype=np.bool_)  # looked at, and not begun
        self._watch = watch
        self._lines = KinkedLines(len(self.tasks))
        self._rising = np.ones(len(self.tasks))  # from 0 to 1
        self._skills = np.zeros(len(self.tasks))  # the highest that was measured
        self._measured = np.zeros(len(self.tasks), dtype=np.int64)  # after how many draws of it
        self._share()

    @classmethod
    def for_run(
        cls,
        info: RunInfo,
        targets: Sequence[str] | None = None,
        epochs: Mapping[str, float] | None = None,
        steps: int | None = None,
        **options: Any,
    ) -> Self:
        """The policy that a run file means."""
        return cls(
            info.tasks,
            info.targets if targets is None else targets,
            epochs=info.epochs if epochs is None else epochs,
            steps=info.steps if steps is None else steps,
            **options,
        )

    def probabilities(self) -> Array:
        """Return the shares of `Aimed`, times what still rises."""
        return self._probabilities

    def due(self, draw: Draw) -> frozenset[Signal]:
        """Return the skill, if the task has slowed and nothing is known that lets it go."""
        k = draw.index
        slowed = self._rising[k] < _SLOWED and self._lines.levels[k] >= self._learned
        known = self._skills[k] >= self._learned or (
            self._lines.seen[k] < _LATER * self._measured[k]
        )
        return self.needs if slowed and not known else frozenset()

    def tell(self, outcome: Outcome) -> None:
        """Learn from the loss, if it is a number, and from the skill, if it was measured."""
        draw, loss = outcome.draw, bounded(outcome.loss, LARGEST_LOSS)
        skill = bounded(outcome.skill, 1.0)
        if skill is not None:
            self._skills[draw.index] = max(skill, self._skills[draw.index])
            self._measured[draw.index] = self._lines.seen[draw.index]
        if loss is not None:
            # A loss below 0 is no likelihood of an outcome; it counts as certain.
            self._lines.observe(draw.index, draw.number, math.exp(-max(loss, 0.0)))
            self._judge(draw.index)
        self._share()

    def _judge(self, k: int) -> None:
        """Set how a task's rise compares with what it was."""
        lines, usual = self._lines, float(self._lines.overall[k])
        error = float(lines.overall_errors[k])
        begun = usual > _CAUTION * error
        new = bool(lines.seen[k] < self._first[k])
        self._waiting[k] = new and error < math.inf and not begun
        self._rising[k] = 1.0
        if new and begun:
            highest = max(0.0, float(lines.slopes[k])) + _CAUTION * float(lines.errors[k])
            self._rising[k] = min(1.0, highest / usual) ** 2

    def _share(self) -> None:
        worth = self._aimed * np.where(self._skills >= self._learned, self._rising, 1.0)
        for group in self._groups:
            waiting = self._waiting & group
            together, rooted = worth[waiting].sum(), worth[waiting] * self._roots[waiting]
            if together > 0:
                worth[waiting] = rooted * (together / rooted.sum())
        total = float(worth.sum())
        shares: Array = worth / total if total > 0 else self._aimed
        shares = self._watch * self._aimed + (1 - self._watch) * shares
        shares.setflags(write=False)
        self._probabilities = shares

    def diagnostics(self) -> dict[str, Any]:
        """Return by task how its rise compares with what it was, and the skill, 0 if unknown."""
        found = {"rising": self._rising, "skills": self._skills}
        return {
            name: dict(zip(self.tasks, values.tolist(), strict=True))
            for name, values in found.items()
        }

    def _state(self) -> dict[str, Any]:
        own = {"skills": self._skills.tolist(), "measured": self._measured.tolist()}
        return self._lines.state_dict() | own

    def _load(self, state: Mapping[str, Any]) -> None:
        self._lines.load_state_dict(state)
        self._skills = np.array(state["skills"], dtype=float)
        self._measured = np.array(state["measured"], dtype=np.int64)
        for k in range(len(self.tasks)):
            self._judge(k)
        self._share()
