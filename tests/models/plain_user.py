"""A user of exported folders who has transformers and not taskmix; `test_export.py` runs this."""

import json
import sys
from typing import Any

import torch
import transformers
from torch import Tensor

AUTO = {
    "tag": "AutoModelForTokenClassification",
    "span": "AutoModelForQuestionAnswering",
    "choose": "AutoModelForMultipleChoice",
}


@torch.inference_mode()
def logits(
    folder: str,
    task: str,
    texts: list[str],
    pairs: list[str],
    pieces: list[list[tuple[int, int, int]]],
    choices: list[str],
    trust: bool,
) -> Tensor:
    """From raw texts to the logits of sequences, or of all tokens that are no padding."""
    auto = getattr(transformers, AUTO.get(task, "AutoModelForSequenceClassification"))
    model = auto.from_pretrained(folder, trust_remote_code=trust)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
    how: dict[str, Any] = {"padding": True, "truncation": True, "return_tensors": "pt"}
    match task:
        case "tag":
            words = [text.split() for text in texts]
            inputs = tokenizer(words, is_split_into_words=True, **how)
            return model(**inputs).logits[inputs["attention_mask"].bool()]
        case "span":
            how |= {"truncation": "only_second", "stride": 4, "return_overflowing_tokens": True}
            inputs = tokenizer(pairs, texts, **how)
            inputs.pop("overflow_to_sample_mapping")
            output = model(**inputs)
            both = torch.stack([output.start_logits, output.end_logits], dim=-1)
            return both[inputs["attention_mask"].bool()]
        case "choose":
            shared = [text for text in texts for _ in choices]
            inputs = tokenizer(shared, choices * len(texts), **how)
            inputs = {n: c.view(len(texts), len(choices), -1) for n, c in inputs.items()}
            return model(**inputs).logits.view(-1, 1)
        case "wic":
            inputs = tokenizer(texts, pairs, **how)
            return model(**inputs, marks=model.find_marks(inputs, pieces)).logits
    return model(**tokenizer(texts, pairs, **how)).logits


def main() -> None:
    """Read what to do from standard input; write logits to standard output."""
    sys.modules["taskmix"] = None  # type: ignore[assignment]  # importing it is an error now
    print(json.dumps([logits(**job).tolist() for job in json.load(sys.stdin)]))


if __name__ == "__main__":
    main()
