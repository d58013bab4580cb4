"""One start for runs, plans and changes of tasks: everything is built before a file is written."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from taskmix.config import HubTask, Optimizer, Resolved, RunConfig, build_decider, is_own, own_class
from taskmix.errors import UserError
from taskmix.models.adapting import adapted
from taskmix.models.build import build, encoder_revision
from taskmix.models.encoders import Encoder, first_line
from taskmix.models.tokenizers import Corpus, tokenizer_for
from taskmix.tasks.batches import make_batch
from taskmix.tasks.data import PythonKind, ReadyBatches
from taskmix.tasks.hub import hub_revision
from taskmix.tasks.task import Task
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.training.frozen_states import with_word_states
from taskmix.training.loading import pick_device
from taskmix.training.objective import check_objective
from taskmix.training.prepare import (
    Prepared,
    PythonTasks,
    prepare,
    read_texts,
    resolve,
    run_info_of,
    texts_of,
)
from taskmix.training.tracking import check_trackers
from taskmix.training.watching import Watchers

log = logging.getLogger(__name__)
RANDOM_ENCODERS = ("small", "bilstm", "cnn", "lenet")
"""The encoders whose weights, or those above a frozen encoder, are random at the start."""


@dataclass(frozen=True)
class PreparedRun:
    """A run before its model is built; everything that needs no model is checked."""

    config: RunConfig
    prepared: list[Prepared]
    tokenizer: Tokenizer | None  # None for tasks without texts
    encoder: type[Encoder] | None  # the user's encoder class
    decider: Any
    cache: Path | None

    @cached_property
    def data(self) -> dict[str, str]:
        """The hashes of each task's training and dev data."""
        return {
            entry.task.name: "-".join(entry.task.split(s).fingerprint() for s in ("train", "dev"))
            for entry in self.prepared
        }

    @property
    def from_python(self) -> bool:
        """Whether data were made in Python, for which the model is made there too."""
        return any(isinstance(entry.task.kind, PythonKind) for entry in self.prepared)

    def new_model(self) -> nn.Module:
        spec, seed = self.config.model_spec, self.config.seed
        kinds = {entry.task.name: entry.task.kind for entry in self.prepared}
        if spec.adapt is not None:
            return adapted(spec, kinds, seed)
        return build(spec, kinds, self.tokenizer, seed, self.encoder)


@dataclass(frozen=True)
class Assembled(PreparedRun):
    model: nn.Module


def prepare_run(
    config: RunConfig,
    python_tasks: PythonTasks | None = None,
    model: nn.Module | None = None,
    cache: Path | None = None,
    watchers: Watchers | None = None,
) -> PreparedRun:
    """Read a run's data and check its configuration; revisions in `resolved` are used again."""
    pick_device(config.device)
    check_trackers(config)
    resolved = _find_revisions(config, model)
    config = _with(config, resolved)
    tasks = resolve(config, python_tasks)
    check_objective(config.objective, config.task_names)
    resolved = resolved.model_copy(update={"causal": _needs_language_model(config, tasks)})
    config = _with(config, resolved)
    encoder = _own_encoder(config)
    texts = read_texts(tasks)
    if model is None:
        config.model_spec.check_used(texts)
    tokenizer = tokenizer_of(tasks, config, cache, encoder) if texts else None
    prepared = prepare(tasks, tokenizer, config, cache, watchers)
    sizes = {entry.task.name: len(entry.train) for entry in prepared}
    config = _with(config, resolved.model_copy(update={"sizes": sizes}))
    run = PreparedRun(config, prepared, tokenizer, encoder, _decider(config, prepared), cache)
    if model is None and not run.from_python:
        _check_rate(config, texts)
    return run


def _check_rate(config: RunConfig, texts: bool) -> None:
    """Warn if the learning rate is the default, which is too low for random weights."""
    encoder = config.model.encoder or ("minilm" if texts else "cnn")
    default = Optimizer.model_fields["lr"].default
    if encoder in RANDOM_ENCODERS and config.model.adapt is None and config.optimizer.lr == default:
        log.warning(
            "optimizer.lr: %g is for a pretrained encoder; %s has random weights, for which rates "
            "from 1e-3 to 3e-3 are usual: set it in the run file, or --set optimizer.lr=3e-3",
            default,
            encoder,
        )


def assemble(
    config: RunConfig,
    python_tasks: PythonTasks | None = None,
    model: nn.Module | None = None,
    cache: Path | None = None,
    watchers: Watchers | None = None,
) -> Assembled:
    run = prepare_run(config, python_tasks, model, cache, watchers)
    if model is None:
        model = run.new_model()
        if run.encoder is None:
            _check_forward(model, run.prepared)
    prepared = with_word_states(run.prepared, model, config, cache, watchers or Watchers())
    return Assembled(
        run.config, prepared, run.tokenizer, run.encoder, run.decider, cache, model=model
    )


def _check_forward(model: nn.Module, prepared: Sequence[Prepared]) -> None:
    """Pass one item of each kind of task through the model, and raise if that fails."""
    first = {type(entry.task.kind): entry for entry in reversed(prepared)}
    model.eval()
    for entry in first.values():
        name = entry.task.name
        if isinstance(entry.train, ReadyBatches):
            continue
        batch = make_batch({name: entry.train}, {name: np.arange(1)}).mapped(torch.as_tensor)
        try:
            with torch.inference_mode(), torch.random.fork_rng():
                model(batch)
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise UserError(f"task {name}: the model cannot read it: {first_line(error)}") from None


def _decider(config: RunConfig, prepared: Sequence[Prepared]) -> Any:
    decider = build_decider(config, run_info_of(config, prepared))
    config.family.load_driver().check(decider, config, prepared)
    try:
        json.dumps(decider.state_dict())
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{config.family.key} {config.decider['name']}: expected state_dict() to return "
            f"JSON-able values, {first_line(error)}"
        ) from None
    return decider


def _needs_language_model(config: RunConfig, tasks: Sequence[Task]) -> bool:
    """Return whether a task generates; raise if the model cannot be a causal language model."""
    if not any(task.kind.reads == "vocabulary" for task in tasks):
        return False
    spec = config.model
    if spec.conditional is not None or spec.encoder in ("bilstm", "cnn", "lenet"):
        found = "model.conditional" if spec.conditional is not None else repr(spec.encoder)
        raise UserError(
            f"model: a task that generates needs a causal language model, found {found}"
        )
    return True


def _own_encoder(config: RunConfig) -> type[Encoder] | None:
    name = config.model.encoder
    if name is None or not is_own(name):
        return None
    cls: type[Encoder] = own_class(name, Encoder, "model.encoder", config.code)
    return cls


def tokenizer_of(
    tasks: list[Task],
    config: RunConfig,
    cache: Path | None = None,
    encoder: type[Encoder] | None = None,
) -> Tokenizer:
    sources = [task.split("train") for task in tasks]
    corpus = Corpus(
        "\x1f".join(source.fingerprint() for source in sources),
        lambda: (text for source in sources for text in texts_of(source.rows())),
    )
    return tokenizer_for(config.model_spec, corpus, cache, encoder)


def _find_revisions(config: RunConfig, model: nn.Module | None) -> Resolved:
    """Return the hub revisions of data sets and encoder, and the class of a model from Python."""
    known = config.resolved or Resolved()
    hub_tasks = [entry for entry in config.tasks if isinstance(entry, HubTask)]
    datasets = {
        task.hub: known.datasets[task.hub] if task.hub in known.datasets else hub_revision(task.hub)
        for task in hub_tasks
        if task.revision is None
    }
    if model is not None:
        path = f"{type(model).__module__}:{type(model).__qualname__}"
        return Resolved(datasets=datasets, model=path)
    if config.python_model is not None:
        raise UserError(
            f"model: this run's model was made in Python, {config.python_model}; pass it again, "
            "as in taskmix.resume(folder, model=...)"
        )
    name = config.model.hub_name
    if name is None or config.model.revision is not None:
        return Resolved(datasets=datasets)
    revision = known.encoders[name] if name in known.encoders else encoder_revision(name)
    return Resolved(datasets=datasets, encoders={name: revision})


def _with(config: RunConfig, resolved: Resolved) -> RunConfig:
    changed: RunConfig = config.model_copy(update={"resolved": resolved})
    return changed
