"""The trainer of sentence-transformers with data sets that are mixed by a policy."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from datasets import DatasetDict
from sentence_transformers import SentenceTransformerTrainer

from taskmix.config import PolicySpec
from taskmix.integrations.transformers import MixtureMixin
from taskmix.mixing import BatchOrder, Mixed, Mixer
from taskmix.mixing.mixed import Collator
from taskmix.rng import seed_for

__all__ = ["MixtureSentenceTransformerTrainer"]

MakeSampler = Callable[[torch.Generator, int], Any]


class SamplerOrder(BatchOrder):
    """The batches of a batch sampler of sentence-transformers, epoch after epoch."""

    def __init__(self, task: str, make: MakeSampler, seed: int) -> None:
        super().__init__(task)
        # Samplers that shared a generator would depend on the draws before.
        self._generator = torch.Generator()
        self._seed = seed_for(seed, "order", task) % 2**31
        self._sampler = make(self._generator, self._seed)

    def epoch_batches(self, epoch: int) -> Iterator[list[int]]:
        # Some samplers seed the generator themselves, in the same way, and some do not.
        self._generator.manual_seed(self._seed + epoch)
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        for batch in self._sampler:
            yield list(batch)


class MixtureSentenceTransformerTrainer(MixtureMixin, SentenceTransformerTrainer):
    """The trainer of sentence-transformers with training sets that are mixed by a policy.

    Its arguments are those of `SentenceTransformerTrainer` and of `MixtureMixin`, except `lengths`
    and `collators`. Each set may have its own `loss`; `batch_sampler`, such as "no_duplicates",
    applies within each set.
    """

    def _stand_in(self, train_dataset: Mapping[str, Any]) -> Any:
        return DatasetDict(train_dataset)

    def _prepared(self, train_dataset: Mapping[str, Any]) -> dict[str, Any]:
        # They have a column with the name of the set if each has its own loss.
        prepared: Mapping[str, Any] = self.train_dataset  # type: ignore[assignment]
        return dict(prepared)

    def _mixer(self, policy: PolicySpec, **options: Any) -> Mixer:
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        orders = {
            name: SamplerOrder(name, partial(self._make_sampler, name), seed)
            for name in self.training_sets
        }
        sizes = Mixed(self.training_sets).sizes
        batch = self.args.train_batch_size
        return Mixer(policy, sizes, batch, seed=seed, orders=orders, **options)

    def _make_sampler(self, name: str, generator: torch.Generator, seed: int) -> Any:
        return self.get_batch_sampler(
            self.training_sets[name],
            batch_size=self.args.train_batch_size,
            drop_last=self.args.dataloader_drop_last,
            valid_label_columns=self.data_collator.valid_label_columns,
            generator=generator,
            seed=seed,
        )

    def _readable(self) -> tuple[dict[str, Any], dict[str, Collator]]:
        return self.training_sets, dict.fromkeys(self.training_sets, self.data_collator)
