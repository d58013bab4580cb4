"""Everything that a run is made of, built before a file is touched."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from taskmix.config import RunConfig, build_decider, is_own, own_class
from taskmix.errors import UserError
from taskmix.models.adapting import adapted
from taskmix.models.build import build, pinned
from taskmix.models.encoders import Encoder, first_line
from taskmix.models.tokenizers import Corpus, tokenizer_for
from taskmix.tasks.batches import make_batch
from taskmix.tasks.data import ReadyBatches
from taskmix.tasks.hub import hub_revision
from taskmix.tasks.task import Task
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.training.engine import pick_device
from taskmix.training.objective import check_objective
from taskmix.training.prepare import (
    Given,
    Prepared,
    prepare,
    read_texts,
    resolve,
    run_info_of,
    texts_of,
)
from taskmix.training.watching import Watchers
from taskmix.training.word_states import with_word_states


@dataclass(frozen=True)
class Assembled:
    """Everything that a run is made of.

    Args:
        config: of the run, with what was found out: revisions of the hub, the model's class.
        prepared: the tasks with their items.
        tokenizer: how texts become ids; None where there are none.
        model: what learns.
        cache: the folder for what is computed once; the default one if None.
    """

    config: RunConfig
    prepared: list[Prepared]
    tokenizer: Tokenizer | None
    model: nn.Module
    cache: Path | None

    @cached_property
    def data(self) -> dict[str, str]:
        """By task, what names the content of its training and dev splits."""
        return {
            entry.task.name: "-".join(entry.task.split(s).fingerprint() for s in ("train", "dev"))
            for entry in self.prepared
        }


def assemble(
    config: RunConfig,
    given: Given | None = None,
    model: nn.Module | None = None,
    cache: Path | None = None,
    watchers: Watchers | None = None,
) -> Assembled:
    """Read the data and build the model that a configuration asks for.

    Args:
        config: of the run.
        given: tasks made in Python, by name.
        model: a module of one's own in place of the configuration's model.
        cache: the folder for what is computed once; the default one if None.
        watchers: are told of the reading.
    """
    pick_device(config.device)
    config = _pinned(config, model)
    tasks = resolve(config, given)
    check_objective(config.objective, (task.name for task in tasks))
    config = with_language_model(config, tasks)
    own = own_encoder(config)
    texts = read_texts(tasks)
    if model is None:
        config.model.check_used(texts)
    tokenizer = tokenizer_of(tasks, config, cache, own) if texts else None
    prepared = prepare(tasks, tokenizer, config, cache, watchers)
    check_decider(config, prepared)
    if model is None:
        model = _built(config, prepared, tokenizer, own)
        if own is None:
            try_out(model, prepared)
    prepared = with_word_states(prepared, model, config, cache, watchers or Watchers())
    return Assembled(config, prepared, tokenizer, model, cache)


def new_model(parts: Assembled) -> nn.Module:
    """Return another model like the one that a run began with."""
    return _built(parts.config, parts.prepared, parts.tokenizer, own_encoder(parts.config))


def _built(
    config: RunConfig,
    prepared: Sequence[Prepared],
    tokenizer: Tokenizer | None,
    own: type[Encoder] | None,
) -> nn.Module:
    kinds = {entry.task.name: entry.task.kind for entry in prepared}
    if config.model.adapt is not None:
        return adapted(config.model, kinds, config.seed)
    return build(config.model, kinds, tokenizer, config.seed, own)


def try_out(model: nn.Module, prepared: Sequence[Prepared]) -> None:
    """Raise one sentence if the model cannot read a first item of each kind of task."""
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


def check_decider(config: RunConfig, prepared: Sequence[Prepared]) -> Any:
    """Return the decider as it is at the start; raise if a run of it on these tasks cannot be."""
    decider = build_decider(config, run_info_of(config, prepared))
    config.family.load_driver().check(decider, config, prepared)
    try:
        json.dumps(decider.state_dict())
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{config.family.key} {config.decider['name']}: expected state_dict() to return what "
            f"JSON can hold, {first_line(error)}"
        ) from None
    return decider


def with_language_model(config: RunConfig, tasks: Sequence[Task]) -> RunConfig:
    """Return the configuration whose model is a causal one, if a task generates."""
    if not any(task.kind.reads == "vocabulary" for task in tasks):
        return config
    spec = config.model
    if spec.conditional is not None or spec.encoder in ("bilstm", "cnn", "lenet"):
        found = "model.conditional" if spec.conditional is not None else repr(spec.encoder)
        raise UserError(
            f"model: a task that generates needs a causal language model, found {found}"
        )
    changed = spec.model_copy(update={"causal": True, "encoder": spec.encoder or "small"})
    told: RunConfig = config.model_copy(update={"model": changed})
    return told


def own_encoder(config: RunConfig) -> type[Encoder] | None:
    """Return the encoder of one's own that the configuration names, if it does."""
    name = config.model.encoder
    if name is None or not is_own(name):
        return None
    found: type[Encoder] = own_class(name, Encoder, "model.encoder", config.code)
    return found


def tokenizer_of(
    tasks: list[Task],
    config: RunConfig,
    cache: Path | None = None,
    own: type[Encoder] | None = None,
) -> Tokenizer:
    """Return the tokenizer of the configuration's model; one may be learned from the tasks."""
    sources = [task.split("train") for task in tasks]
    corpus = Corpus(
        "\x1f".join(source.fingerprint() for source in sources),
        lambda: (text for source in sources for text in texts_of(source.rows())),
    )
    return tokenizer_for(config.model, corpus, cache, own)


def _pinned(config: RunConfig, model: nn.Module | None) -> RunConfig:
    """Return the configuration with the hub's revisions of today, and the given model's class."""
    changes: dict[str, Any] = {"tasks": tuple(_pinned_task(entry) for entry in config.tasks)}
    if model is not None:
        path = f"{type(model).__module__}:{type(model).__qualname__}"
        changes["model"] = config.model.model_copy(update={"given": path})
    elif config.model.given is not None:
        raise UserError(
            f"model: this run's model was made in Python, {config.model.given}; pass it again, "
            "as in taskmix.resume(folder, model=...)"
        )
    else:
        changes["model"] = pinned(config.model)
    pinned_config: RunConfig = config.model_copy(update=changes)
    return pinned_config


def _pinned_task(entry: str | dict[str, Any]) -> str | dict[str, Any]:
    if isinstance(entry, str) or "hub" not in entry or entry.get("revision") is not None:
        return entry
    revision = hub_revision(entry["hub"])
    return entry if revision is None else entry | {"revision": revision}
