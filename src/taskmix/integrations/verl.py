"""A policy as a curriculum sampler of verl."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Sampler

from taskmix.config import build_policy
from taskmix.errors import UserError
from taskmix.integrations.prime_rl import EnvironmentMix
from taskmix.mixing import ItemOrder
from taskmix.policies import Policy
from taskmix.run_info import RunInfo

__all__ = ["MixtureSampler"]

if TYPE_CHECKING:
    _Base = Sampler[int]
else:
    try:  # verl takes no other class, and updates no other
        from verl.experimental.dataset.sampler import AbstractCurriculumSampler as _Base
    except ImportError:
        _Base = Sampler


class MixtureSampler(_Base):
    """Draws the environment of each prompt by a policy, for verl's `data.sampler`.

    It is one of verl's curriculum samplers: it yields the numbers of rows, and verl calls `update`
    after each step. The environment of a row is its `data_source`. In verl's configuration:

        data.sampler.class_path=pkg://taskmix.integrations.verl
        data.sampler.class_name=MixtureSampler
        +data.sampler.policy={name: sec, temperature: 0.1}
        data.dataloader_num_workers=0

    The state is part of the loader's, because verl's loader saves the state of a sampler that has
    one. An epoch is as many full batches as the data set has. Groups that verl filters out before
    the update leave their draws open.

    Args:
        data_source: verl's data set, with the rows in `dataframe`.
        data_config: the section `data` of verl's configuration: `seed`, the size of a batch,
            `sampler.policy` (a name, or a mapping with a name and options), and `sampler.journal`,
            a file, if wanted.
    """

    def __init__(self, data_source: Any, data_config: Mapping[str, Any]) -> None:
        environments = np.asarray(data_source.dataframe["data_source"])
        self._rows = {
            str(name): np.flatnonzero(environments == name) for name in np.unique(environments)
        }
        section = data_config["sampler"]
        seed = data_config.get("seed")  # None in verl's own configuration
        seed = 1 if seed is None else int(seed)
        sizes = {name: len(rows) for name, rows in self._rows.items()}
        self.mix = EnvironmentMix(
            _policy(section.get("policy", "random"), sizes),
            sizes,
            1,
            seed=seed,
            journal=section.get("journal"),
        )
        self._orders = {name: ItemOrder(name, size, 1, seed) for name, size in sizes.items()}
        batch = data_config.get("gen_batch_size") or data_config.get("train_batch_size") or 1
        # verl's loader drops the rest, and would never report the draws in it.
        self._length = len(environments) // batch * batch
        self._place = 0  # in the epoch

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        while self._place < self._length:
            self._place += 1
            name = self.mix.pick()
            [item] = self._orders[name].next()
            yield int(self._rows[name][item])
        self._place = 0

    def update(self, batch: Any) -> None:
        """Tell the policy the rewards of a step's groups, which have their `uid` in common."""
        tensors, columns = batch.batch, batch.non_tensor_batch
        mask = tensors["response_mask"].float()
        rewards = tensors["token_level_scores"].sum(-1).tolist()
        totals = (tensors["advantages"].abs() * mask).sum(-1) / mask.sum(-1).clamp(min=1)
        advantages, tokens = totals.tolist(), mask.sum(-1).int().tolist()
        groups: dict[str, list[int]] = {}
        for row, uid in enumerate(columns["uid"]):
            groups.setdefault(str(uid), []).append(row)
        for rows in groups.values():
            self.mix.observe(
                str(columns["data_source"][rows[0]]),
                *([values[row] for row in rows] for values in (rewards, advantages, tokens)),
            )

    def state_dict(self) -> dict[str, Any]:
        orders = {name: order.state_dict() for name, order in self._orders.items()}
        return {"mix": self.mix.state_dict(), "orders": orders, "place": self._place}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mix.load_state_dict(state["mix"])
        self._place = state["place"]
        for name, order in self._orders.items():
            order.load_state_dict(state["orders"][name])


def _policy(given: Any, sizes: Mapping[str, int]) -> Policy:
    spec = given if isinstance(given, str) else dict(given)
    try:
        # verl knows its number of steps only later; no policy for rewards needs it.
        return build_policy(spec, RunInfo(sizes, steps=1, batch=1))
    except (ValueError, TypeError) as error:
        raise UserError(f"data.sampler.policy: {error}") from None
