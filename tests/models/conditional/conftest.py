"""Small encoders and mixed batches."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

PAD = 1

Make = Callable[..., PreTrainedModel]
Batch = dict[str, Tensor]


def small(
    family: str = "bert", layers: int = 2, seed: int = 0, **options: object
) -> PreTrainedModel:
    """An encoder 12 wide that reads up to 24 tokens, in evaluation mode."""
    sizes = {
        "vocab_size": 30,
        "hidden_size": 12,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 20,
        "pad_token_id": PAD,
        "type_vocab_size": 2,
    } | options
    torch.manual_seed(seed)
    model: PreTrainedModel
    if family == "bert":
        model = BertModel(BertConfig(max_position_embeddings=24, **sizes))
    elif family == "roberta":
        model = RobertaModel(RobertaConfig(max_position_embeddings=24 + PAD + 1, **sizes))
    else:
        config = ElectraConfig(max_position_embeddings=24, **{"embedding_size": 8} | sizes)
        model = ElectraModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # As after pretraining: norms and biases that are not ones and zeros.
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif "embeddings" not in name:
                parameter.mul_(10)
    return model.eval()


def texts(sequences: int = 5, tokens: int = 9, padded: bool = True, seed: int = 1) -> Batch:
    """A batch of sequences of two texts each, the odd ones shorter if padded."""
    torch.manual_seed(seed)
    ids = torch.randint(2, 30, (sequences, tokens))
    mask = torch.ones_like(ids)
    if padded:
        mask[1::2, tokens // 2 + 1 :] = 0
    second = (torch.arange(tokens) > 3).long().expand(sequences, -1) * mask
    return {
        "input_ids": ids.masked_fill(mask == 0, PAD),
        "attention_mask": mask,
        "token_type_ids": second,
    }


def shake(module: nn.Module, seed: int = 2, scale: float = 0.3) -> None:
    """Move all conditional parameters away from their start."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if not name.startswith("encoder."):
                parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


@pytest.fixture
def make() -> Make:
    return small


@pytest.fixture
def batch() -> Callable[..., Batch]:
    return texts


@pytest.fixture
def shaken() -> Callable[..., None]:
    return shake
