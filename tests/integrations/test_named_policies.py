"""Every host takes a policy by its name, or as a mapping of its name and options."""

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from taskmix.errors import UserError
from taskmix.integrations.lightning import MixtureDataModule
from taskmix.mixing import Decisions, Mixer, Streams

Host = Callable[[Path, Path, Any], Decisions]
SIZES = {"a": 30, "b": 10}


def _tests_of(host: str) -> Any:
    """Return the module of a host's own tests, which makes its trainers."""
    path = Path(__file__).with_name(f"test_{host}.py")
    spec = spec_from_file_location(f"hosts_{host}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


transformers, trl, grpo = map(_tests_of, ("transformers", "trl", "grpo"))
lightning, sentences = map(_tests_of, ("lightning", "sentence_transformers"))
encoder = sentences.encoder  # a fixture


def _lightning(folder: Path, encoder: Path, policy: Any) -> Decisions:
    module = MixtureDataModule(lightning.data(), policy, 8, seed=1)
    return module._make(batches=1)


HOSTS: dict[str, Host] = {
    "transformers": lambda folder, _, policy: transformers.trainer(folder, policy=policy).mixer,
    "sft": lambda folder, _, policy: trl.trainer(folder, policy=policy).mixer,
    "grpo": lambda folder, _, policy: grpo.trainer(folder, policy=policy).mixer,
    "sentence_transformers": lambda folder, encoder, policy: (
        sentences.trainer(folder, encoder, policy=policy).mixer
    ),
    "lightning": _lightning,
    "mixer": lambda folder, _, policy: Mixer(policy, SIZES, 4, seed=1),
    "streams": lambda folder, _, policy: Streams(
        policy, {"a": [[1]], "b": [[2]]}, seed=1, sizes=SIZES
    ),
}


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> Host:
    return HOSTS[request.param]


def test_a_policy_by_name_draws_the_hosts_sets(host: Host, tmp_path: Path, encoder: Path) -> None:
    mixer = host(tmp_path, encoder, "aimed")
    assert mixer.policy.name == "aimed"
    assert mixer.ask().task in mixer.policy.tasks
    assert len(mixer.policy.tasks) > 1


def test_so_it_does_with_options(host: Host, tmp_path: Path, encoder: Path) -> None:
    first = host(tmp_path / "a", encoder, "random").policy.tasks[0]
    spec = {"name": "aimed", "targets": [first], "rest": 0.5, "repeats": None}
    assert host(tmp_path / "b", encoder, spec).policy.probabilities()[0] == pytest.approx(0.5)


def test_a_misspelt_name_is_one_sentence_with_the_nearest(
    host: Host, tmp_path: Path, encoder: Path
) -> None:
    with pytest.raises(UserError, match="did you mean 'random'") as error:
        host(tmp_path, encoder, "randm")
    assert "\n" not in str(error.value)


def test_a_trainers_budget_reaches_the_policy(tmp_path: Path) -> None:
    short = transformers.trainer(tmp_path / "short", policy="aimed", max_steps=2)
    long = transformers.trainer(tmp_path / "long", policy="aimed", max_steps=2000)
    sizes = {name: len(rows) for name, rows in short.training_sets.items()}
    smallest = min(sizes, key=lambda name: sizes[name])
    place = short.mixer.policy.tasks.index(smallest)
    even = 1 / len(sizes)
    assert short.mixer.policy.probabilities()[place] == pytest.approx(even)
    assert long.mixer.policy.probabilities()[place] < even - 0.05


def test_streams_need_sizes_for_a_policy_by_name() -> None:
    with pytest.raises(UserError, match="sizes: expected those of all tasks"):
        Streams("random", {"a": [[1]]}, seed=1)


@pytest.mark.parametrize("policy", [3, {"eta": 0.1}, None])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(UserError, match="policy: expected a policy, its name, or a mapping"):
        Mixer(policy, SIZES, 4, seed=1)
