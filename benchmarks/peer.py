"""The peer: the Trainer of transformers with interleaved data sets and a head for each task."""

import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

from taskmix.models.encoders import packaged_minilm, quiet
from taskmix.tasks import catalogue
from taskmix.tasks.rows import TextRow

TASKS = ["glue/mrpc", "glue/rte", "glue/cola", "glue/sst2"]
LAYERS, BATCH, MAX_LENGTH, MAX_ROWS = 2, 16, 128, 2400
# The Trainer groups by length within 50 batches, the longest ones first: fewer steps would be slow.
STEPS = 50


class Heads(torch.nn.Module):
    """An encoder, and a head for each task, chosen by a column; a batch may mix tasks."""

    def __init__(self) -> None:
        super().__init__()
        folder = str(packaged_minilm())
        config = AutoConfig.from_pretrained(folder)
        config.num_hidden_layers = LAYERS
        self.encoder = AutoModel.from_pretrained(folder, config=config)
        self.heads = torch.nn.ModuleList(torch.nn.Linear(config.hidden_size, 2) for _ in TASKS)

    def forward(self, input_ids, attention_mask, token_type_ids, head, labels):
        hidden = self.encoder(input_ids, attention_mask, token_type_ids).last_hidden_state
        pooled = (hidden * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        logits = torch.stack([layer(pooled) for layer in self.heads], 1)
        chosen = logits[torch.arange(len(head)), head]
        return {"loss": torch.nn.functional.cross_entropy(chosen, labels), "logits": chosen}


@cache
def tokenizer() -> PreTrainedTokenizerBase:
    with quiet():
        return AutoTokenizer.from_pretrained(str(packaged_minilm()))


@cache
def sets() -> dict[str, Any]:
    """Return the tokenised rows of each task, without padding."""
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    tokenised = {}
    for number, name in enumerate(TASKS):
        task = catalogue.find(name)
        every = [row for row in task.split("train").rows() if isinstance(row, TextRow)]
        rows = every[:: max(1, len(every) // MAX_ROWS)][:MAX_ROWS]
        labels = {label: place for place, label in enumerate(task.kind.labels)}
        pairs = [row.pair for row in rows] if rows[0].pair is not None else None
        texts = [row.text for row in rows]
        columns = dict(tokenizer()(texts, pairs, truncation=True, max_length=MAX_LENGTH))
        columns["length"] = [len(ids) for ids in columns["input_ids"]]
        columns["labels"] = [labels[row.label] for row in rows]
        tokenised[name] = Dataset.from_dict(columns | {"head": [number] * len(rows)})
    return tokenised


def interleaved() -> Any:
    from datasets import interleave_datasets

    # In memory: the Trainer is not measured by how it reads a mapping from indices to files.
    return interleave_datasets(list(sets().values()), seed=1).flatten_indices(keep_in_memory=True)


def training(
    make: Callable[..., Trainer] = Trainer,
    *,
    train_dataset: Any = None,
    padding: str = "longest",
    **settings: Any,
) -> Callable[[], None]:
    """Return a function that trains `STEPS` steps; making the Trainer is not measured."""
    with quiet():
        model = Heads()
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=BATCH,
        max_steps=STEPS,
        learning_rate=1e-5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        use_cpu=True,
        dataloader_pin_memory=False,
        **settings,
    )
    collator = DataCollatorWithPadding(tokenizer(), padding=padding, max_length=MAX_LENGTH)
    data = interleaved() if train_dataset is None else train_dataset
    trainer = make(model=model, args=arguments, data_collator=collator, train_dataset=data)
    trainer.remove_callback(PrinterCallback)

    def steps() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.train()

    return steps


PEERS: dict[str, dict[str, Any]] = {
    "group_by_length": {"train_sampling_strategy": "group_by_length"},
    "dynamic padding": {},
    f"padding to {MAX_LENGTH}": {"padding": "max_length"},
}
"""Settings of the peer, the fastest first."""
