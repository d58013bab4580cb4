"""Asking a policy in somebody else's loop, and telling it what came of each draw."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np

from taskmix.errors import UserError
from taskmix.journal import Opening
from taskmix.mixing.recorder import Recorder
from taskmix.policies import Draw, Outcome, Policy, Signal
from taskmix.rng import restore, state_of, stream

log = logging.getLogger(__name__)


class Decisions:
    """The draws of a policy and what came of them, however late that is known.

    A draw is open from `ask` to `settle`. Loaders look ahead, so several are open at a time; they
    are part of the state.

    Args:
        policy: who is asked.
        sizes: by task, its training examples; empty if nobody knows.
        batch: examples in a batch; None if nobody knows.
        seed: of the draws.
        journal: the file to write every draw to; it must not be there yet. None for no journal.
        lag: a draw knows the outcomes of the draws this many before it and earlier, and no others,
            so it does not depend on how far a loader looks ahead. None: a draw knows every outcome
            that was settled before it.
    """

    def __init__(
        self,
        policy: Policy,
        sizes: Mapping[str, int],
        batch: int | None,
        *,
        seed: int,
        journal: Path | str | None = None,
        lag: int | None = None,
    ) -> None:
        if lag is not None and lag < 1:
            raise UserError(f"lag: expected at least 1 draw, found {lag}")
        self.policy = policy
        self.seed = seed
        self.lag = lag
        self.open: dict[int, Draw] = {}
        self.spent: dict[str, int] = dict.fromkeys(policy.tasks, 0)
        self._untold: dict[int, Outcome] = {}
        self._rng = stream(seed, "draws")
        self._recorder = Recorder(
            journal,
            Opening(
                "mixture",
                list(policy.tasks),
                dict(sizes),
                seed,
                {"name": policy.name},
                {} if batch is None else {"batch": batch},
            ),
        )

    def ask(self) -> Draw:
        """Draw the task of the next batch."""
        self._recorder.begin()
        if self.lag is not None:
            self._tell_until(self.policy.draws + 1 - self.lag)
        draw = self.policy.ask(self._rng)
        self.open[draw.number] = draw
        return draw

    def _tell_until(self, number: int) -> None:
        """Tell the outcomes of all draws up to this one, in order."""
        early = [other for other in self.open if other <= number]
        if early:
            raise UserError(
                f"lag: expected as many draws as the loader looks ahead, and one more, found "
                f"{self.lag}: draw {early[0]} was not settled when draw {self.policy.draws + 1} "
                f"was asked for"
            )
        for other in sorted(other for other in self._untold if other <= number):
            self.policy.tell(self._untold.pop(other))

    def due(self, number: int) -> frozenset[Signal]:
        """Return the signals that the policy wants measured for an open draw."""
        return self.policy.due(self.opened(number))

    def settle(
        self,
        number: int,
        *,
        loss: SupportsFloat | None = None,
        gain: SupportsFloat | None = None,
        score: float | None = None,
        uncertainty: Mapping[str, float] | None = None,
        examples: int | None = None,
        tokens: int | None = None,
        dev_losses: Mapping[str, float] | None = None,
        alignment: float | None = None,
        gradient: float | None = None,
        skill: float | None = None,
    ) -> None:
        """Say what came of a draw; in any order, once for each.

        A draw whose loss is not a finite number is closed and left out: the policy is not told and
        the journal does not have it.

        Args:
            number: of the draw, as its batches carry it.
            loss: mean loss of its batches before the step.
            gain: by how much the step lowered that loss.
            score: dev score of the task that the policy's `DevScore` names.
            uncertainty: of the model on each task.
            examples: how many it was spent on.
            tokens: how many it was spent on, padding left out.
            dev_losses: of the tasks that the policy's `DevLosses` names, after the step.
            alignment: of its batches' gradient with the mean dev gradient; see `Alignment`.
            gradient: the length of that gradient.
            skill: how far the task's dev score is above guessing; see `Skill`.
        """
        draw = self.opened(number)
        del self.open[draw.number]
        self.spent[draw.task] += examples or 0
        measured = None if loss is None else _number(loss)
        if measured is not None and not math.isfinite(measured):
            log.warning("draw %d of %s: its loss is %s; left out", number, draw.task, measured)
            return
        outcome = Outcome(
            draw,
            measured,
            _finite(gain),
            score,
            uncertainty,
            tokens,
            dev_losses,
            _finite(alignment),
            _finite(gradient),
            _finite(skill),
        )
        self._recorder.draw(outcome, examples=examples)
        if self.lag is None:
            self.policy.tell(outcome)
        else:
            self._untold[draw.number] = outcome

    def opened(self, number: int) -> Draw:
        """Return an open draw; raise if it was settled before, or never drawn."""
        found = self.open.get(int(number))
        if found is None:
            raise UserError(
                f"draw {int(number)}: expected an open one, found one that was settled before"
                if 1 <= number <= self.policy.draws
                else f"draw {int(number)}: expected an open one, found one that was never drawn"
            )
        return found

    def shares(self) -> dict[str, float]:
        """Return each task's part of the examples that were spent so far."""
        total = sum(self.spent.values())
        return {task: examples / total if total else 0.0 for task, examples in self.spent.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next draw depends on, as JSON-able values.

        Take it when every draw that was trained on is settled: open draws come again.
        """
        return {
            "settings": self._settings(),
            "policy": self.policy.state_dict(),
            "rng": state_of(self._rng),
            "open": [_saved(draw) for draw in self.open.values()],
            "untold": [_saved_outcome(outcome) for outcome in self._untold.values()],
            "spent": dict(self.spent),
            "journal": self._recorder.position(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned, in a mixture of the same sets and settings."""
        self._check(state)
        self.policy.load_state_dict(state["policy"])
        self._rng = restore(state["rng"])
        self.open = {saved["number"]: self._draw(saved) for saved in state["open"]}
        outcomes = [self._outcome(saved) for saved in state["untold"]]
        self._untold = {outcome.draw.number: outcome for outcome in outcomes}
        self.spent = dict(state["spent"])
        self._recorder.resume(state["journal"])

    def _settings(self) -> dict[str, Any]:
        """Return what a state must have in common with the mixture that takes it up."""
        return {"tasks": list(self.policy.tasks), "seed": self.seed, "lag": self.lag}

    def _check(self, state: Mapping[str, Any]) -> None:
        if "settings" not in state:
            raise UserError("state: expected what state_dict returned, found no settings in it")
        saved = state["settings"]
        for name, expected in self._settings().items():
            if saved.get(name) != expected:
                raise UserError(f"state, {name}: expected {expected}, found {saved.get(name)}")

    def _draw(self, saved: Mapping[str, Any]) -> Draw:
        index = saved["index"]
        shares = np.array(saved["probabilities"], dtype=np.float64)
        shares.setflags(write=False)
        return Draw(self.policy.tasks[index], index, shares, saved["number"])

    def _outcome(self, saved: Mapping[str, Any]) -> Outcome:
        return Outcome(self._draw(saved["draw"]), **saved["measured"])


def _number(value: SupportsFloat) -> float:
    # A tensor that has a gradient warns if it is made a float in any other way.
    return float(value.item()) if hasattr(value, "item") else float(value)


def _finite(value: SupportsFloat | None) -> float | None:
    number = math.nan if value is None else _number(value)
    return number if math.isfinite(number) else None


def _saved(draw: Draw) -> dict[str, Any]:
    return {
        "number": draw.number,
        "index": draw.index,
        "probabilities": draw.probabilities.tolist(),
    }


def _saved_outcome(outcome: Outcome) -> dict[str, Any]:
    measured = {
        "loss": outcome.loss,
        "gain": outcome.gain,
        "score": outcome.score,
        "uncertainty": None if outcome.uncertainty is None else dict(outcome.uncertainty),
        "tokens": outcome.tokens,
        "dev_losses": None if outcome.dev_losses is None else dict(outcome.dev_losses),
        "alignment": outcome.alignment,
        "gradient": outcome.gradient,
        "skill": outcome.skill,
    }
    return {"draw": _saved(outcome.draw), "measured": measured}
