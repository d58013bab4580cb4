"""Causal language models, which tasks that generate share; with adapters where asked for."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.encoders import (
    SAME,
    Encoder,
    Representation,
    check_width,
    freeze_layers,
    long_enough,
    quiet,
    text_config,
)
from taskmix.models.exported import pool
from taskmix.models.spec import LoraSpec, ModelSpec, Pooling
from taskmix.tasks.encoding import SECOND

BASE = "base"
"""The folder of the model that adapters belong to, where nobody else has it."""


class CausalEncoder(Encoder):
    """A causal language model of transformers with its own head, and perhaps with adapters.

    Where there are adapters, they alone are trained, and they alone are in the state that
    checkpoints keep: the rest is as it was when the model was built.

    Args:
        model: the language model, or peft's model around it.
        pooling: what the heads of other tasks see of a sequence.
    """

    def __init__(self, model: nn.Module, pooling: Pooling) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.width = int(self._config.hidden_size)
        if self.adapted:
            adapters = {name for name, p in self.named_parameters() if p.requires_grad}
            self._rest = self.state_dict().keys() - adapters
            self.register_state_dict_post_hook(_only_adapters)  # type: ignore[no-untyped-call]
            self.register_load_state_dict_post_hook(_rest_is_there)  # type: ignore[no-untyped-call]

    @property
    def _config(self) -> Any:
        return self.model.config

    @property
    def adapted(self) -> bool:
        """Whether the model has adapters."""
        return not isinstance(self.model, PreTrainedModel)

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Return the numbers of the next words; token vectors and their pool for other heads."""
        mask = inputs["attention_mask"]
        output = self.model(
            input_ids=inputs["input_ids"],
            attention_mask=mask,
            output_hidden_states=True,
            use_cache=False,
        )
        tokens: Tensor = output.hidden_states[-1]
        pooled = pool(tokens, mask, inputs.get(SECOND), self.pooling)
        return Representation(pooled, tokens, output.logits)

    @property
    def pooled_width(self) -> int:
        """How many numbers stand for a sequence."""
        return self.width * (4 if self.pooling == "pair" else 1)

    def merged(self) -> PreTrainedModel:
        """Return the language model as transformers has it, adapters added to its weights."""
        if not self.adapted:
            assert isinstance(self.model, PreTrainedModel)
            return self.model
        plain: PreTrainedModel = copy.deepcopy(self.model).merge_and_unload()  # type: ignore[operator]
        return plain

    @torch.inference_mode()
    def written(self, prompts: Tensor, most: int, end: int | None) -> Tensor:
        """Return what greedy decoding says after prompts of one length, shape `(prompts, most)`.

        Behind the token that ends a text, whatever stands there means nothing.

        Args:
            prompts: token ids, shape `(prompts, tokens)`.
            most: tokens to say.
            end: the token that ends a text; None if there is none.
        """
        self.eval()
        said, given, cache = prompts, prompts, None
        for _ in range(most):
            output = self.model(input_ids=given, past_key_values=cache, use_cache=True)
            best = output.logits[:, -1:].argmax(-1)
            said = torch.cat([said, best], dim=1)
            cache = getattr(output, "past_key_values", None)
            given = said if cache is None else best
            if end is not None and bool((said[:, prompts.shape[1] :] == end).any(1).all()):
                break
        return said[:, prompts.shape[1] :]


def _only_adapters(encoder: nn.Module, state: dict[str, Any], prefix: str, _local: Any) -> None:
    """Leave the weights that adapters belong to out of a state."""
    assert isinstance(encoder, CausalEncoder)
    for name in encoder._rest:
        del state[prefix + name]


def _rest_is_there(encoder: nn.Module, keys: Any) -> None:
    """Do not miss what `_only_adapters` leaves out."""
    assert isinstance(encoder, CausalEncoder)
    missing = keys.missing_keys
    missing[:] = [key for key in missing if key.removeprefix("encoder.") not in encoder._rest]


def build_causal(spec: ModelSpec, folder: str | None, vocabulary: int) -> CausalEncoder:
    """Make the language model that a spec names: from its folder, or with random weights."""
    return CausalEncoder(adapted(_language_model(spec, folder, vocabulary), spec), spec.pooling)


def adapted(model: PreTrainedModel, spec: ModelSpec) -> nn.Module:
    """Return a language model of which that is trained which the spec says, perhaps adapters."""
    if spec.freeze:
        freeze_layers(model, spec.freeze)
    return model if spec.lora is None else _with_adapters(model, spec.lora)


def _language_model(spec: ModelSpec, folder: str | None, vocabulary: int) -> PreTrainedModel:
    if folder is None:
        return GPT2LMHeadModel(small_causal_config(spec, vocabulary))
    config = text_config(folder, spec)
    with quiet():
        try:
            model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
                folder, config=config, revision=spec.revision, dtype=torch.float32
            )
        except ValueError:
            raise _no_language_model(folder, config.model_type) from None
    long_enough(model.config, spec.max_length)
    if not _is_causal(model):
        raise _no_language_model(folder, config.model_type)
    return model


def _no_language_model(folder: str, architecture: str) -> UserError:
    return UserError(
        f"model.encoder: {folder} is a {architecture}, whose tokens see those behind them or that "
        "has no language model; expected a causal language model for tasks that generate"
    )


def small_causal_config(spec: ModelSpec, vocabulary: int) -> GPT2Config:
    """Return the configuration of a `small` that writes."""
    check_width(spec)
    return GPT2Config(
        vocab_size=vocabulary,
        n_positions=spec.max_length,
        n_embd=spec.width,
        n_layer=spec.layers or 2,
        n_head=spec.attention_heads,
        resid_pdrop=spec.dropout,
        embd_pdrop=spec.dropout,
        attn_pdrop=spec.dropout,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


@torch.inference_mode()
def _is_causal(model: PreTrainedModel) -> bool:
    """Return whether what is said of a first token is the same whatever follows it."""
    model.eval()
    ids = torch.tensor([[1, 2, 3, 4], [1, 4, 3, 2]])
    first = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[:, 0]
    return bool((first[0] - first[1]).abs().max() < SAME * first.abs().max())


def _with_adapters(model: PreTrainedModel, spec: LoraSpec) -> nn.Module:
    peft = _peft()
    config = peft.LoraConfig(
        r=spec.rank,
        lora_alpha=spec.alpha,
        lora_dropout=spec.dropout,
        target_modules=None if spec.targets is None else list(spec.targets),
        fan_in_fan_out=isinstance(model, GPT2LMHeadModel),
        task_type="CAUSAL_LM",
    )
    try:
        with_adapters: nn.Module = peft.get_peft_model(model, config)
    except ValueError as error:
        raise UserError(f"model.lora.targets: {str(error).splitlines()[0]}") from None
    return with_adapters


def _peft() -> Any:
    if find_spec("peft") is None:
        raise UserError("model.lora: needs peft; install it with: pip install 'taskmix[lora]'")
    import peft

    return peft


def save_causal(encoder: CausalEncoder, folder: Path, source: str | None) -> None:
    """Write a language model for transformers, or its adapters for peft.

    Args:
        encoder: has the model.
        folder: is written to.
        source: the folder or hub name of the model that adapters belong to; None if nobody else
            has it, so that it is written too.
    """
    with quiet():
        encoder.model.save_pretrained(folder)  # type: ignore[operator]
        if encoder.adapted and source is None:
            copy.deepcopy(encoder.model).unload().save_pretrained(folder / BASE)  # type: ignore[operator]


def load_adapted(spec: ModelSpec, folder: Path, source: str | None) -> CausalEncoder:
    """Return the language model whose adapters `save_causal` wrote."""
    place = str(folder / BASE) if source is None else source
    known = spec if source is not None else spec.model_copy(update={"revision": None})
    base = _language_model(known, place, 0)
    with quiet():
        model = _peft().PeftModel.from_pretrained(base, folder, is_trainable=True)
    return CausalEncoder(model, spec.pooling)


def write_on(
    encoder: CausalEncoder,
    prompts: Sequence[Sequence[int]],
    most: Sequence[int],
    end: int | None,
    size: int,
) -> list[list[int]]:
    """Return what greedy decoding says after each prompt, up to the token that ends a text.

    Args:
        encoder: the language model.
        prompts: the token ids of each.
        most: how many tokens may follow each.
        end: the token that ends a text; None if there is none.
        size: prompts in a batch; those of one length go together, so that none is padded.
    """
    said: list[list[int]] = [[] for _ in prompts]
    device = next(encoder.parameters()).device
    for places in _alike([len(prompt) for prompt in prompts], size):
        ids = torch.tensor([list(prompts[place]) for place in places], device=device)
        longest = max(most[place] for place in places)
        for place, row in zip(places, encoder.written(ids, longest, end).tolist(), strict=True):
            said[place] = _until(row[: most[place]], end)
    return said


def _alike(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield groups of at most `size` places that have one length."""
    for length in sorted(set(lengths)):
        places = [place for place, each in enumerate(lengths) if each == length]
        for start in range(0, len(places), size):
            yield places[start : start + size]


def _until(ids: list[int], end: int | None) -> list[int]:
    return ids[: ids.index(end)] if end in ids else ids
