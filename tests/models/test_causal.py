"""Greedy decoding, against one pass over the whole text for each token."""

import pytest
import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

from taskmix.models.causal import CausalEncoder, with_trained_part, write_on
from taskmix.models.spec import LoraSpec, ModelSpec

PROMPTS = [[1, 5, 9], [1, 7], [1, 2, 3], [1, 30], [1, 4, 4, 4, 8]]
MOST = [6, 9, 0, 3, 9]


def language_model() -> GPT2LMHeadModel:
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=40, n_positions=32, n_embd=16, n_layer=2, n_head=2, initializer_range=0.6
    )
    return GPT2LMHeadModel(config)


@torch.inference_mode()
def transcribed(encoder: CausalEncoder, prompt: list[int], most: int, end: int | None) -> list[int]:
    ids = list(prompt)
    for _ in range(most):
        best = int(encoder.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())
        if best == end:
            break
        ids.append(best)
    return ids[len(prompt) :]


@pytest.mark.parametrize("lora", [None, LoraSpec()], ids=["all", "lora"])
@pytest.mark.parametrize("end", [None, "said"])
def test_it_says_the_most_probable_token_each_time(lora: LoraSpec | None, end: str | None) -> None:
    model = with_trained_part(language_model(), ModelSpec(encoder="small", lora=lora))
    encoder = CausalEncoder(model, "mean").eval()
    if lora is not None:  # an adapter starts as nothing
        for name, parameter in encoder.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    stop = None if end is None else transcribed(encoder, PROMPTS[0], 4, None)[3]
    expected = [
        transcribed(encoder, prompt, most, stop) for prompt, most in zip(PROMPTS, MOST, strict=True)
    ]
    assert write_on(encoder, PROMPTS, MOST, stop, 2) == expected
    assert any(expected)
    if stop is not None:
        assert any(len(ids) < most for ids, most in zip(expected, MOST, strict=True))


def test_a_models_own_settings_do_not_change_it() -> None:
    model = language_model()
    encoder = CausalEncoder(model, "mean").eval()
    plain = write_on(encoder, PROMPTS, MOST, None, 4)
    settings = GenerationConfig(
        repetition_penalty=5.0, num_beams=3, eos_token_id=plain[0][1], min_new_tokens=2
    )
    model.generation_config = settings
    assert write_on(encoder, PROMPTS, MOST, None, 4) == plain
    assert model.generation_config is settings
