"""Our batch sampler in the Trainer of transformers, beside the ways people feed it today."""

import os
import tempfile
import warnings
from collections.abc import Callable
from functools import cache

import torch
from harness import Result, median_ratio
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

import taskmix
from taskmix.models.encoders import packaged_minilm, quiet
from taskmix.tasks import catalogue
from taskmix.tasks.rows import TextRow

TASKS = ["glue/mrpc", "glue/rte", "glue/cola", "glue/sst2"]
LAYERS, BATCH, STEPS, ROWS = 2, 16, 12, 1000
GOAL_MIXED, GOAL_ALONE = 2.0, 0.97


class Heads(torch.nn.Module):
    """An encoder, a head for each task, chosen by a column; a batch may mix tasks."""

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
        logits = torch.stack([each(pooled) for each in self.heads], 1)
        chosen = logits[torch.arange(len(head)), head]
        return {"loss": torch.nn.functional.cross_entropy(chosen, labels), "logits": chosen}


@cache
def _tokenizer() -> PreTrainedTokenizerBase:
    with quiet():
        return AutoTokenizer.from_pretrained(str(packaged_minilm()))


@cache
def _sets() -> dict:
    """Tokenised, not padded: a batch is padded to its own longest example."""
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    found = {}
    for number, name in enumerate(TASKS):
        task = catalogue.find(name)
        every = [row for row in task.split("train").rows() if isinstance(row, TextRow)]
        rows = every[:: max(1, len(every) // ROWS)][:ROWS]
        labels = {label: place for place, label in enumerate(task.kind.labels)}
        pairs = [row.pair for row in rows] if rows[0].pair is not None else None
        encoded = _tokenizer()([row.text for row in rows], pairs, truncation=True, max_length=128)
        columns = {"labels": [labels[row.label] for row in rows], "head": [number] * len(rows)}
        found[name] = Dataset.from_dict(dict(encoded) | columns)
    return found


def _arguments(**more: object) -> TrainingArguments:
    return TrainingArguments(
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
        **more,
    )


def _training(make: Callable[..., Trainer], **more: object) -> Callable[[], None]:
    """So many steps of a Trainer; what is made before them is not measured apart from them."""
    with quiet():
        model = Heads()

    def steps() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer = make(
                model=model,
                args=_arguments(),
                data_collator=DataCollatorWithPadding(_tokenizer()),
                **more,
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()

    return steps


def against_interleaving() -> list[Result]:
    """Batches of one task from length buckets, and batches of all tasks, padded as they come."""
    if not os.environ.get("TASKMIX_DATA"):
        return []
    from datasets import interleave_datasets

    from taskmix.integrations.transformers import MixtureTrainer

    sets = _sets()
    lengths = {name: [len(ids) for ids in each["input_ids"]] for name, each in sets.items()}
    mixed = interleave_datasets(list(sets.values()), [1 / len(sets)] * len(sets), seed=1)
    theirs = _training(Trainer, train_dataset=mixed)

    def ours(**options: object) -> Trainer:
        return MixtureTrainer(policy=taskmix.Random(TASKS), lengths=lengths, **options)

    ratio = median_ratio(theirs, _training(ours, train_dataset=sets), repeats=3)
    name = "Trainer with our sampler / interleave_datasets, examples/s"
    return [Result(name, ratio, "x", f">= {GOAL_MIXED}", ratio >= GOAL_MIXED)]


def against_one_data_set() -> list[Result]:
    """What the sampler costs where there is nothing to win: one data set, no buckets."""
    if not os.environ.get("TASKMIX_DATA"):
        return []
    from taskmix.integrations.transformers import MixtureTrainer

    # All examples of one length, so that both do the same work whatever their order.
    only = _sets()["glue/mrpc"].map(lambda row: {k: _fixed(v) for k, v in row.items()})
    alone = _training(Trainer, train_dataset=only)

    def ours(**options: object) -> Trainer:
        return MixtureTrainer(policy=taskmix.Random(["mrpc"]), **options)

    ratio = median_ratio(alone, _training(ours, train_dataset={"mrpc": only}), repeats=9)
    name = "Trainer with our sampler / Trainer alone, one data set"
    return [Result(name, ratio, "x", f">= {GOAL_ALONE}", ratio >= GOAL_ALONE)]


def _fixed(value: object, length: int = 48) -> object:
    return (value * length)[:length] if isinstance(value, list) else value


BENCHMARKS = [against_interleaving, against_one_data_set]
