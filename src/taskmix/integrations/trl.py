"""TRL's SFTTrainer with data sets that are mixed by a policy."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from torch import Tensor
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from taskmix.integrations.transformers import MixtureMixin
from taskmix.mixing import RandomState

__all__ = ["MixtureSFTMixin", "MixtureSFTTrainer"]


class MixtureSFTMixin(MixtureMixin):
    """Makes TRL's SFTTrainer, or a subclass of it, mix several training sets by a policy.

    Each set is tokenised and packed separately, so no packed row has text of two sets.
    """

    # Of the SFTTrainer that comes after it.
    args: SFTConfig
    _formatting_func: Any
    _metrics: Any
    _prepare_dataset: Callable[..., Any]
    _skip_prepare_dataset: bool
    _total_train_tokens: int

    def _stand_in(self, train_dataset: Mapping[str, Any]) -> Any:
        # SFTTrainer prepares this one in its __init__; _prepared prepares the others.
        return next(iter(train_dataset.values()))

    def _prepared(self, train_dataset: Mapping[str, Any]) -> dict[str, Any]:
        first, *others = train_dataset
        prepared = {**train_dataset, first: self.train_dataset}
        for name in () if self._skip_prepare_dataset else others:
            prepared[name] = self._prepare_dataset(
                train_dataset[name],
                self.processing_class,
                self.args,
                self.args.packing,
                self._formatting_func,
                name,
            )
        return prepared

    def mixture_state(self) -> dict[str, Any]:
        # SFTTrainer itself loses them when it resumes.
        train = {name: list(values) for name, values in self._metrics["train"].items()}
        counted = {"tokens": self._total_train_tokens, "metrics": train}
        return super().mixture_state() | counted

    def load_mixture_state(self, state: Mapping[str, Any]) -> None:
        super().load_mixture_state(state)
        if "tokens" in state:  # version 0.1 did not save them
            self._total_train_tokens = state["tokens"]
            self._metrics["train"].update(state["metrics"])

    def _loss_again(self, inputs: dict[str, Any], task: str, state: RandomState) -> Tensor:
        with self._uncounted():
            return super()._loss_again(inputs, task, state)

    def _score(self, metric: str, name: str, examples: int | None) -> float:
        with self._uncounted():
            return super()._score(metric, name, examples)

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        """Keep tokens and metrics, which SFTTrainer counts at every computation of a loss."""
        metrics, tokens = deepcopy(self._metrics), self._total_train_tokens
        yield
        self._metrics, self._total_train_tokens = metrics, tokens


class MixtureSFTTrainer(MixtureSFTMixin, SFTTrainer):
    """TRL's SFTTrainer with training sets that are mixed by a policy.

    Its arguments are those of `trl.SFTTrainer` and of `MixtureMixin`.
    """
