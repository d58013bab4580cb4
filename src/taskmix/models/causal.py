"""Causal language models, which tasks that generate share, with or without adapters."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
)

from taskmix.errors import UserError
from taskmix.models.encoders import (
    PooledEncoder,
    Representation,
    check_length,
    check_width,
    is_causal,
    load_weights,
    quiet,
    text_config,
)
from taskmix.models.frozen import freeze_layers
from taskmix.models.spec import LoraSpec, ModelSpec, Pooling

ADAPTERS = "adapter_model.safetensors"
BASE = "base"
"""The folder of the adapters' base model, where it is stored with them."""


class CausalEncoder(PooledEncoder):
    """A causal language model of transformers with its own head, or peft's model around it.

    Where there are adapters, they alone are trained, and they alone are in the state that
    checkpoints store: the other weights stay as they were when the model was built.
    """

    def __init__(self, model: nn.Module, pooling: Pooling) -> None:
        super().__init__(model, pooling)
        if self.adapted:
            adapters = {name for name, p in self.named_parameters() if p.requires_grad}
            self._base_names = self.state_dict().keys() - adapters
            self.register_state_dict_post_hook(_only_adapters)  # type: ignore[no-untyped-call]
            self.register_load_state_dict_post_hook(_ignore_base)  # type: ignore[no-untyped-call]

    @property
    def adapted(self) -> bool:
        return not isinstance(self.model, PreTrainedModel)

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        output = self.model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            output_hidden_states=True,
            use_cache=False,
        )
        return self._represent(output.hidden_states[-1], inputs, output.logits)

    def merged(self) -> PreTrainedModel:
        """Return the language model with its adapters added to its weights."""
        model: PreTrainedModel = self.model
        return copy.deepcopy(self.model).merge_and_unload() if self.adapted else model

    def decode(self, prompts: Tensor, max_new_tokens: int, end: int | None) -> list[list[int]]:
        """Decode greedily after prompts of one length, shape `(prompts, tokens)`.

        Behind the end token of a row stands padding.
        """
        self.eval()
        model: Any = self.model.get_base_model() if self.adapted else self.model
        # A model's own settings, such as a repetition penalty, would fill in for those not given.
        settings, model.generation_config = model.generation_config, GenerationConfig()
        try:
            output: Tensor = model.generate(
                prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=max_new_tokens,
                do_sample=False,
                eos_token_id=end,
                pad_token_id=0,
            )
        finally:
            model.generation_config = settings
        rows: list[list[int]] = output[:, prompts.shape[1] :].tolist()
        return rows


def _only_adapters(encoder: nn.Module, state: dict[str, Any], prefix: str, _local: Any) -> None:
    """Leave the base model's weights out of a state."""
    assert isinstance(encoder, CausalEncoder)
    for name in encoder._base_names:
        del state[prefix + name]


def _ignore_base(encoder: nn.Module, keys: Any) -> None:
    """Do not report the weights that `_only_adapters` leaves out as missing."""
    assert isinstance(encoder, CausalEncoder)
    missing = keys.missing_keys
    missing[:] = [key for key in missing if key.removeprefix("encoder.") not in encoder._base_names]


def build_causal(spec: ModelSpec, source: str | None, vocabulary: int) -> CausalEncoder:
    model = _language_model(spec, source, vocabulary)
    return CausalEncoder(with_trained_part(model, spec), spec.pooling)


def with_trained_part(model: PreTrainedModel, spec: ModelSpec) -> nn.Module:
    """Freeze the spec's lower layers, and add its adapters."""
    if spec.freeze:
        freeze_layers(model, spec.freeze)
    return model if spec.lora is None else _with_adapters(model, spec.lora)


def _language_model(spec: ModelSpec, source: str | None, vocabulary: int) -> PreTrainedModel:
    if source is None:
        return GPT2LMHeadModel(small_causal_config(spec, vocabulary))
    config = text_config(source, spec)
    model = None
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        try:
            model = load_weights(AutoModelForCausalLM, source, config, spec.revision)
        except UserError as error:  # such as an encoder without the weights of a head
            raise UserError(
                f"{error}; tasks that generate expected a causal language model"
            ) from None
        check_length(model.config, spec.max_length)
    if model is None or not is_causal(model):
        raise UserError(
            f"model.encoder: {source} is a {config.model_type}, whose tokens see those behind them "
            "or that has no language model; expected a causal language model for tasks that "
            "generate"
        )
    return model


def small_causal_config(spec: ModelSpec, vocabulary: int) -> GPT2Config:
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

    `source` is the folder or hub name of the adapters' base model; where it is None, the base model
    is written too.
    """
    with quiet():
        encoder.model.save_pretrained(folder)
        if encoder.adapted and source is None:
            copy.deepcopy(encoder.model).unload().save_pretrained(folder / BASE)


def load_adapted(spec: ModelSpec, folder: Path, source: str | None) -> CausalEncoder:
    """Load a language model whose adapters `save_causal` wrote."""
    if source is None:
        source, spec = str(folder / BASE), spec.model_copy(update={"revision": None})
    if not (folder / ADAPTERS).exists():
        raise UserError(f"{folder}: expected adapters in {ADAPTERS}, found no such file")
    base = _language_model(spec, source, 0)
    with quiet():
        model = _peft().PeftModel.from_pretrained(base, folder, is_trainable=True)
    return CausalEncoder(model, spec.pooling)


def write_on(
    encoder: CausalEncoder,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: Sequence[int],
    end: int | None,
    size: int,
) -> list[list[int]]:
    """Decode greedily after each prompt, up to the token `end`.

    Prompts of one length share a batch of at most `size`, so that none is padded.
    """
    answers: list[list[int]] = [[] for _ in prompts]
    device = next(encoder.parameters()).device
    for group in _groups_by_length([len(prompt) for prompt in prompts], size):
        longest = max(max_new_tokens[number] for number in group)
        if longest < 1:
            continue
        ids = torch.tensor([list(prompts[number]) for number in group], device=device)
        for number, row in zip(group, encoder.decode(ids, longest, end), strict=True):
            answer = row[: max_new_tokens[number]]
            answers[number] = answer[: answer.index(end)] if end in answer else answer
    return answers


def _groups_by_length(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Yield groups of at most `size` indices whose lengths are equal."""
    for length in sorted(set(lengths)):
        numbers = [number for number, other in enumerate(lengths) if other == length]
        for start in range(0, len(numbers), size):
            yield numbers[start : start + size]
