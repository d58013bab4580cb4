"""Several data sets in the SFTTrainer of TRL, mixed by a policy."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from torch import Tensor
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from taskmix.integrations.transformers import MixtureMixin
from taskmix.mixing import RandomState

__all__ = ["MixtureSFTMixin", "MixtureSFTTrainer"]


class MixtureSFTMixin(MixtureMixin):
    """Makes TRL's SFTTrainer, or a subclass of it, take several training sets and a policy.

    Each set is tokenised, and packed if `packing` says so, by itself: no packed row has text of two
    sets.
    """

    # Of the SFTTrainer that comes after it.
    args: SFTConfig
    _formatting_func: Any
    _metrics: Any
    _prepare_dataset: Callable[..., Any]
    _skip_prepare_dataset: bool
    _total_train_tokens: int

    def _stand_in(self, train_dataset: Mapping[str, Any]) -> Any:
        # SFTTrainer prepares this one while it is made, and the others after that.
        return next(iter(train_dataset.values()))

    def _prepared(self, train_dataset: Mapping[str, Any]) -> dict[str, Any]:
        first, *others = train_dataset
        prepared = {first: self.train_dataset}
        for name in others:
            prepared[name] = self._prepared_set(name, train_dataset[name])
        return prepared

    def _prepared_set(self, name: str, dataset: Any) -> Any:
        if self._skip_prepare_dataset:
            return dataset
        return self._prepare_dataset(
            dataset,
            self.processing_class,
            self.args,
            self.args.packing,
            self._formatting_func,
            name,
        )

    def _loss_again(self, inputs: dict[str, Any], task: str, state: RandomState) -> Tensor:
        # SFTTrainer counts tokens and metrics whenever it computes a loss.
        metrics, tokens = deepcopy(self._metrics), self._total_train_tokens
        loss = super()._loss_again(inputs, task, state)
        self._metrics, self._total_train_tokens = metrics, tokens
        return loss


class MixtureSFTTrainer(MixtureSFTMixin, SFTTrainer):
    """TRL's SFTTrainer over several training sets, mixed by a policy.

    Takes what `trl.SFTTrainer` takes and what `MixtureMixin` adds.
    """
