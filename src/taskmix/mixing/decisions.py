"""The draw loop: ask a policy, keep its open draws, tell it their outcomes, write the journal."""

import logging
import math
import sys
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from taskmix.config import PolicySpec, build_policy
from taskmix.errors import UserError, unknown
from taskmix.files import JOURNAL, free_name
from taskmix.journal import Evaluation, Journal, Opening, Step
from taskmix.policies import Draw, Outcome, Policy, Signal
from taskmix.policies.signals import MEASURED, Measured
from taskmix.rng import restore, state_of, stream
from taskmix.run_info import RunInfo

log = logging.getLogger(__name__)
_FLOATS = frozenset(field.name for field in fields(Measured) if field.type == float | None)


class Decisions:
    """The draws of a policy, and their outcomes, which may arrive late and in any order.

    A draw is open from `ask` to `settle`. Loaders look ahead, so several may be open at a time;
    they are part of the state.

    Args:
        policy: draws the tasks; or its name, or a mapping of its name and options, with `sizes`.
        sizes: by task, the number of training examples if known, for the journal and for a policy
            that is named.
        batch: examples in a batch if known, for the journal.
        seed: the seed of the draws.
        journal: a new file to write every draw to; or an open journal, which its owner closes.
        lag: draw n uses only the outcomes of the draws up to n - lag, so it does not depend on how
            far a loader looks ahead. None: it uses all outcomes settled before it.

    >>> import taskmix
    >>> decisions = Decisions(taskmix.Random(["a", "b"]), seed=1)
    >>> draw = decisions.ask()
    >>> decisions.settle(draw.number, loss=0.7, examples=16)
    >>> decisions.shares()[draw.task]
    1.0
    """

    def __init__(
        self,
        policy: PolicySpec,
        sizes: Mapping[str, int] | None = None,
        batch: int | None = None,
        *,
        seed: int,
        journal: Journal | Path | str | None = None,
        lag: int | None = None,
    ) -> None:
        if lag is not None and lag < 1:
            raise UserError(f"lag: expected at least 1 draw, found {lag}")
        policy = policy_over(policy, sizes, batch)
        self.policy = policy
        self.seed = seed
        self.lag = lag
        self.rng = stream(seed, "draws")
        self.open: dict[int, Draw] = {}
        self.spent: dict[str, int] = dict.fromkeys(policy.tasks, 0)
        self._untold: dict[int, Outcome] = {}
        self._journal = journal if isinstance(journal, Journal) else None
        self._path = None if journal is None or isinstance(journal, Journal) else Path(journal)
        self._sizes = dict(sizes or {})
        self._batch = batch
        #: Fields of the journal's opening that only the training loop knows, such as its name.
        self.about: dict[str, Any] = {}
        if self._path is not None and self._path.is_dir():
            raise UserError(
                f"journal: expected a file, such as {self._path / JOURNAL}, found the folder "
                f"{self._path}"
            )

    def ask(self) -> Draw:
        """Draw the task of the next batch."""
        self._begin_journal()
        if self.lag is not None:
            self._tell_until(self.policy.draws + 1 - self.lag)
        draw = self.policy.ask(self.rng)
        self.open[draw.number] = draw
        return draw

    def _tell_until(self, number: int) -> None:
        """Tell the outcomes of all draws up to this one, in order."""
        early = [draw for draw in self.open if draw <= number]
        if early:
            raise UserError(
                f"lag: expected more draws than the loader looks ahead, found {self.lag}: draw "
                f"{early[0]} was not settled when draw {self.policy.draws + 1} was asked for"
            )
        for settled in sorted(draw for draw in self._untold if draw <= number):
            self._tell(self._untold.pop(settled))

    def _tell(self, outcome: Outcome) -> None:
        self.policy.tell(outcome)

    def due(self, number: int) -> frozenset[Signal]:
        """Return the signals that the policy wants measured for an open draw."""
        return self.policy.due(self.opened(number))

    def settle(
        self,
        number: int,
        *,
        step: int | None = None,
        seconds: float | None = None,
        **measured: Any,
    ) -> Step | None:
        """Tell the policy the outcome of an open draw, and return its record in the journal.

        A signal that is due has to be given, None if it could not be measured; without any
        measurement, the draw was not trained on. If the loss is not finite, the draw is closed
        without an outcome and without a record. Other values that are not finite count as not
        measured.

        Args:
            number: the number of the draw, which its batches contain.
            step: the number of the step in the journal; that of the draw if None.
            seconds: the duration of the step, for the journal.
            measured: the measurements of `taskmix.Outcome` by name, such as `loss`, `gain` and
                `examples`; numbers may be tensors.
        """
        draw = self.opened(number)
        for name in measured:
            if name not in MEASURED:
                raise unknown("measurement", name, MEASURED, f"draw {draw.number}")
        self._check_signals(draw, measured)
        if (examples := self._close(draw)) is not None and measured.get("examples") is None:
            measured["examples"] = examples
        self.spent[draw.task] += measured.get("examples") or 0
        values = {name: _plain(name, value) for name, value in measured.items()}
        loss = values.get("loss")
        if loss is not None and not math.isfinite(loss):
            log.warning("draw %d of %s: its loss is %s; left out", number, draw.task, loss)
            return None
        outcome = Outcome(draw, **{name: _finite(value) for name, value in values.items()})
        record = None
        if self._journal is not None:
            record = self._journal.draw(draw.number if step is None else step, outcome, seconds)
        if self.lag is None:
            self._tell(outcome)
        else:
            self._untold[draw.number] = outcome
        return record

    def _close(self, draw: Draw) -> int | None:
        """Forget an open draw; return the number of its examples if it is known."""
        del self.open[draw.number]
        return None

    def _check_signals(self, draw: Draw, measured: Mapping[str, Any]) -> None:
        """Raise if there are measurements, but not those of a signal that is due."""
        if measured.keys() <= {"examples", "tokens"}:
            return
        for signal in self.policy.due(draw):
            name = signal.measurement
            if name and name not in measured:
                raise UserError(
                    f"draw {draw.number}: expected settle(..., {name}=...), as policy "
                    f"{self.policy.name} learns from it, found {', '.join(measured)}"
                )

    def evaluated(self, scores: Mapping[str, float], losses: Mapping[str, float]) -> None:
        """Write the dev scores (higher is better) and dev losses of all tasks to the journal."""
        for name, values in (("scores", scores), ("losses", losses)):
            check_names(name, values, self.policy.tasks)
        if self._journal is None:
            return
        tasks = self.policy.tasks
        mean = sum(float(scores[task]) for task in tasks) / len(tasks)
        settled = self.policy.draws - len(self.open)
        self._journal.append(
            Evaluation(
                settled,
                "dev",
                mean,
                {task: float(scores[task]) for task in tasks},
                {task: float(losses[task]) for task in tasks},
            )
        )

    def opened(self, number: int) -> Draw:
        """Return an open draw; raise if it was settled before, or never drawn."""
        draw = self.open.get(int(number))
        if draw is None:
            state = "settled before" if 1 <= number <= self.policy.draws else "never drawn"
            raise UserError(f"draw {int(number)}: expected an open one, found one that was {state}")
        return draw

    def shares(self) -> dict[str, float]:
        """Return the share of each task in the examples so far."""
        total = sum(self.spent.values())
        return {task: examples / total if total else 0.0 for task, examples in self.spent.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON-able values; draws that are open in it are repeated."""
        return {
            "settings": self._settings(),
            "policy": self.policy.state_dict(),
            "rng": state_of(self.rng),
            "open": [_saved(draw) for draw in self.open.values()],
            "untold": [
                {"draw": _saved(outcome.draw), "measured": outcome.measured()}
                for outcome in self._untold.values()
            ],
            "spent": dict(self.spent),
            "journal": self._journal_position(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state of the same tasks and settings."""
        self._check_settings(state)
        self.policy.load_state_dict(state["policy"])
        self.rng = restore(state["rng"])
        self.open = {saved["number"]: self._draw(saved) for saved in state["open"]}
        self._untold = {
            saved["draw"]["number"]: Outcome(self._draw(saved["draw"]), **saved["measured"])
            for saved in state["untold"]
        }
        self.spent = dict(state["spent"])
        self._resume_journal(state["journal"])

    def _settings(self) -> dict[str, Any]:
        tasks, name = list(self.policy.tasks), self.policy.name
        return {"tasks": tasks, "policy": name, "seed": self.seed, "lag": self.lag}

    def _check_settings(self, state: Mapping[str, Any]) -> None:
        if "settings" not in state:
            raise UserError("state: expected the result of state_dict, found no settings in it")
        saved = state["settings"]
        for name, here in self._settings().items():
            if (there := saved.get(name, here)) != here:  # a setting may be newer than the state
                if isinstance(here, dict) and isinstance(there, dict):
                    other = [key for key in here if here[key] != there.get(key)]
                    there, here = ({key: of.get(key) for key in other} for of in (there, here))
                raise UserError(
                    f"state, {name}: checkpoint: {there}; this training: {here}; resume with the "
                    "settings of the checkpoint, or start a new training in another folder"
                )

    def _draw(self, saved: Mapping[str, Any]) -> Draw:
        index, probabilities = saved["index"], np.array(saved["probabilities"], dtype=np.float64)
        probabilities.setflags(write=False)
        return Draw(self.policy.tasks[index], index, probabilities, saved["number"])

    def put_journal_aside(self) -> None:
        """Rename a journal that belongs to no checkpoint, so that a new one can begin."""
        if self._path is None or self._journal is not None or _rank() > 0:
            return
        if self._path.exists():
            aside = self._path.rename(free_name(self._path))
            log.warning("%s: no checkpoint belongs to this journal; kept as %s", self._path, aside)

    def _begin_journal(self) -> None:
        """Create the file at the first draw, not before: a state may still be loaded."""
        if self._path is None or self._journal is not None or _rank() > 0:
            return
        size = self._path.stat().st_size if self._path.exists() else 0
        if size:
            raise UserError(
                f"{self._path}: expected no journal before the first draw, found one of {size} "
                "bytes; resume the training that it belongs to (in a Trainer: "
                "resume_from_checkpoint=True), or remove it"
            )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        budget = {} if self._batch is None else {"batch": self._batch}
        decider, tasks = self.policy.spec or {"name": self.policy.name}, list(self.policy.tasks)
        opening = Opening("mixture", tasks, self._sizes, self.seed, dict(decider), budget)
        self._keep(Journal.create(self._path, replace(opening, **self.about)))

    def _journal_position(self) -> int | None:
        if self._journal is None:
            return None
        self._journal.sync()  # before its position is relied upon
        return self._journal.position

    def _resume_journal(self, position: int | None) -> None:
        if self._path is None or _rank() > 0:
            return
        if self._journal is not None:
            self._journal.close()
            self._journal = None
            if position is None:
                self._path.unlink()
        if position is None:
            return
        if not self._path.exists():
            raise UserError(f"{self._path}: expected the journal of the state, found no such file")
        self._keep(Journal.resume(self._path, position))

    def _keep(self, journal: Journal) -> None:
        self._journal = journal
        # The user's training loop has no place to close it.
        weakref.finalize(self, journal.close)


def check_names(
    what: str, names: Iterable[str], tasks: Iterable[str], of: str = "task of the policy"
) -> None:
    """Raise unless these are the names of the tasks."""
    found, expected = dict.fromkeys(names), dict.fromkeys(tasks)
    faults = {
        "missing": [task for task in expected if task not in found],
        "unknown": [name for name in found if name not in expected],
    }
    found_faults = [f"{fault}: {', '.join(map(str, at))}" for fault, at in faults.items() if at]
    if found_faults:
        raise UserError(f"{what}: expected one for each {of}; {'; '.join(found_faults)}")


def check_measured(policy: Policy, unmeasured: Iterable[Signal]) -> None:
    """Raise if the policy needs signals that the training loop does not measure."""
    names = sorted({type(signal).__name__ for signal in unmeasured})
    if names:
        raise UserError(
            f"policy {policy.name}: expected one that learns from what is measured here, found one "
            f"that needs {', '.join(names)}"
        )


def _rank() -> int:
    if "torch" not in sys.modules:
        return 0
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _plain(name: str, value: Any) -> Any:
    if value is None or name not in _FLOATS:
        return value
    # float() of a tensor with a gradient warns.
    return float(value.item()) if hasattr(value, "item") else float(value)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _saved(draw: Draw) -> dict[str, Any]:
    return {
        "number": draw.number,
        "index": draw.index,
        "probabilities": draw.probabilities.tolist(),
    }


def policy_over(
    policy: PolicySpec,
    sizes: Mapping[str, int] | None,
    batch: int | None = None,
    steps: int | None = None,
) -> Policy:
    """Return a policy; one that is named is made for tasks of these sizes.

    Unknown batches count as one example each, unknown steps as one epoch of all tasks.
    """
    if isinstance(policy, Policy):
        return policy
    if not sizes:
        raise UserError(f"sizes: expected those of all tasks for the policy {policy!r}, found none")
    batch = batch or 1
    steps = steps or math.ceil(sum(sizes.values()) / batch)
    return build_policy(policy, RunInfo(sizes, steps, batch))
