"""What is saved of a mixture is the mixer's own state, not that of a loader in front of it."""

import json
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import taskmix
from taskmix.config import RunConfig, build_decider
from taskmix.errors import UserError
from taskmix.mixing import Mixed, Mixer, Tally, collate_by
from taskmix.run_info import RunInfo

SETS = {"a": TensorDataset(torch.arange(40)), "b": TensorDataset(torch.arange(100, 160))}


def made(workers: int) -> tuple[Mixer, Any]:
    """A new mixer, and torchdata's loader that has a state too."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    mixed = Mixed(SETS)
    mixer = Mixer(taskmix.Exp3S(list(SETS), eta=0.3), mixed.sizes, 4, seed=1)
    options = {"collate_fn": collate_by(), "num_workers": workers}
    return mixer, StatefulDataLoader(mixed, batch_sampler=mixer, **options)


def trained(mixer: Mixer, batches: Any, steps: int) -> list[tuple[int, str, list[int]]]:
    seen = []
    for _ in range(steps):
        batch = next(batches)
        seen.append((int(batch["draw"]), batch["task"], batch["batch"][0].tolist()))
        mixer.settle(batch["draw"], loss=0.7, gain=0.1 * (batch["task"] == "a"))
    return seen


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_the_mixers_state_is_what_counts_whatever_a_loader_has_fetched(workers: int) -> None:
    mixer, loader = made(workers)
    whole = trained(mixer, iter(loader), 10)
    mixer, loader = made(workers)
    before = trained(mixer, iter(loader), 5)
    state, loaders = json.loads(json.dumps(mixer.state_dict())), loader.state_dict()

    mixer, loader = made(workers)
    mixer.load_state_dict(state)
    assert before + trained(mixer, iter(loader), 5) == whole

    # The pitfall: with workers, the loader's own state has forgotten what they had fetched.
    mixer, loader = made(workers)
    loader.load_state_dict(loaders)
    assert (before + trained(mixer, iter(loader), 5) == whole) == (workers == 0)


@pytest.mark.parametrize(
    ("policy", "signal"),
    [
        (taskmix.Thompson(["a", "b"], primary="a"), "DevScore"),
        (taskmix.ActivePrioritization(["a", "b"]), "Uncertainty"),
    ],
    ids=["dev scores", "uncertainty"],
)
def test_policies_that_need_dear_signals_are_refused_in_hosts(
    policy: taskmix.Policy, signal: str
) -> None:
    """Every host settles its draws through a tally."""
    with pytest.raises(UserError) as caught:
        Tally(Mixer(policy, {"a": 4, "b": 4}, 2, seed=1))
    assert str(caught.value) == (
        f"policy {policy.name}: expected one that learns from what is measured here, found one "
        f"that needs {signal}"
    )


@pytest.mark.parametrize("objective", [None, "a"])
def test_the_default_policy_of_a_run_is_accepted_in_hosts(objective: str | None) -> None:
    config = RunConfig(tasks=["a", "b"], objective=objective)
    info = RunInfo({"a": 4, "b": 4}, steps=9, batch=2, objective=("a",) if objective else ())
    policy = build_decider(config, info)
    assert isinstance(policy, taskmix.Policy)
    Tally(Mixer(policy, {"a": 4, "b": 4}, 2, seed=1))
