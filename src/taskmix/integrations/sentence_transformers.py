"""Several data sets in the trainer of sentence-transformers, mixed by a policy."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from datasets import DatasetDict
from sentence_transformers import SentenceTransformerTrainer

from taskmix.integrations.transformers import MixtureMixin
from taskmix.mixing import BatchOrder, Mixed, Mixer
from taskmix.mixing.mixed import Collator
from taskmix.policies import Policy
from taskmix.rng import seed_for

__all__ = ["MixtureSentenceTransformerTrainer"]

MakeSampler = Callable[[torch.Generator, int], Any]


class SamplerOrder(BatchOrder):
    """The batches that a batch sampler of sentence-transformers gives, epoch after epoch.

    Args:
        task: the data set's name.
        make: makes the sampler from a generator and a seed. Each data set has its own: samplers
            that share a generator depend on which of them was drawn before.
        seed: the order depends on it, the name and the epoch.
    """

    def __init__(self, task: str, make: MakeSampler, seed: int) -> None:
        super().__init__(task)
        self._generator = torch.Generator()
        self._seed = seed_for(seed, "order", task) % 2**31
        self._sampler = make(self._generator, self._seed)

    def epoch_batches(self, epoch: int) -> Iterator[list[int]]:
        """Yield the batches of an epoch."""
        # Some samplers seed the generator by themselves, the same way, and some do not.
        self._generator.manual_seed(self._seed + epoch)
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch)
        for batch in self._sampler:
            yield list(batch)


class MixtureSentenceTransformerTrainer(MixtureMixin, SentenceTransformerTrainer):
    """The trainer of sentence-transformers over several training sets, mixed by a policy.

    `loss` may be one for each set, and `batch_sampler` (such as "no_duplicates") is respected
    within each. Takes what `SentenceTransformerTrainer` takes and what `MixtureMixin` adds, except
    `lengths` and `collators`.
    """

    def _stand_in(self, train_dataset: Mapping[str, Any]) -> Any:
        return DatasetDict(train_dataset)

    def _prepared(self, train_dataset: Mapping[str, Any]) -> dict[str, Any]:
        # With a column that names the set, if each has a loss of its own.
        prepared: Mapping[str, Any] = self.train_dataset  # type: ignore[assignment]
        return dict(prepared)

    def _mixer(self, policy: Policy, **options: Any) -> Mixer:
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        orders = {name: SamplerOrder(name, self._makes(name), seed) for name in policy.tasks}
        sizes = Mixed(self.training_sets).sizes
        batch = self.args.train_batch_size
        return Mixer(policy, sizes, batch, seed=seed, orders=orders, **options)

    def _makes(self, name: str) -> MakeSampler:
        def make(generator: torch.Generator, seed: int) -> Any:
            return self.get_batch_sampler(
                self.training_sets[name],
                batch_size=self.args.train_batch_size,
                drop_last=self.args.dataloader_drop_last,
                valid_label_columns=self.data_collator.valid_label_columns,
                generator=generator,
                seed=seed,
            )

        return make

    def _readable(self) -> tuple[dict[str, Any], dict[str, Collator]]:
        return self.training_sets, dict.fromkeys(self.training_sets, self.data_collator)
