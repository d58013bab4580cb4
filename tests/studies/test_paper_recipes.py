"""Every recipe at the paper's size: two steps with a tiny encoder of the same family."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from taskmix import RunConfig, run
from taskmix.config import changed, load
from taskmix.studies.contestants import Job, contestant_config, jobs_of
from taskmix.studies.reproduce import Recipe, read_recipe, recipe_names
from taskmix.studies.reproduce.experiments import NewTask, zero_shot_scores
from taskmix.studies.reproduce.measures import MEASURES
from taskmix.studies.workers import Runner
from taskmix.training.folder import Finished

TRAINED = [name for name in recipe_names() if not read_recipe(name).bandit]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{n}" for n in range(40)), "the"]
ROWS = 40
EXAMPLES = 12
"""Of a dev set; both classes are among the first ones."""
ROOT = Path(__file__).parents[2]
QUESTION = {
    "context": "the cat sat",
    "qas": [
        {
            "qid": "q1",
            "question": "who?",
            "answers": ["cat"],
            "detected_answers": [{"text": "cat", "char_spans": [[4, 6]]}],
        }
    ],
}
MRQA = ("NewsQA", "TriviaQA-web", "SearchQA", "HotpotQA", "NaturalQuestionsShort")
BOOLQ = [
    {"question": "is it", "passage": "It is.", "idx": n, "label": n % 2 == 0} for n in range(8)
]
RECORD = {
    "source": "x",
    "passage": {
        "text": "Ann met Bob.",
        "entities": [{"start": 0, "end": 2}, {"start": 8, "end": 10}],
    },
    "qas": [{"query": "@placeholder met Bob", "answers": [{"text": "Ann"}], "idx": 0}],
    "idx": 0,
}


def packed(path: Path, *lines: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode()))


@pytest.fixture(scope="session")
def all_data(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The official data, and a few made rows of the sets that are not among them."""
    folder = tmp_path_factory.mktemp("data")
    for entry in data.iterdir():
        if entry.name != "superglue":
            (folder / entry.name).symlink_to(entry)
    (folder / "superglue").mkdir()
    for entry in (data / "superglue").iterdir():
        (folder / "superglue" / entry.name).symlink_to(entry)
    for split in ("train", "val"):
        packed(folder / f"superglue/BoolQ/{split}.jsonl.gz", *BOOLQ)
        packed(folder / f"superglue/ReCoRD/{split}.jsonl.gz", *[RECORD] * 8)
    header = {"header": {"dataset": "x", "split": "train"}}
    for name in MRQA:
        for split in ("train", "dev"):
            packed(folder / f"mrqa/{split}/{name}.jsonl.gz", header, *[QUESTION] * 8)
    return folder


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny encoders by family and depth."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    }
    families = {"bert": (BertConfig, BertModel), "roberta": (RobertaConfig, RobertaModel)}
    folders = {}
    for family, (config, model) in families.items():
        for size, layers in (("base", 12), ("large", 24)):
            folder = tmp_path_factory.mktemp(f"{family}-{size}")
            shape = {"num_hidden_layers": layers, "hidden_size": 16, "num_attention_heads": 2}
            more = {"intermediate_size": 32, "vocab_size": len(WORDS), "pad_token_id": 0}
            model(config(**shape, **more, max_position_embeddings=300)).save_pretrained(folder)
            PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
            folders[f"{family}-{size}"] = folder
    return folders


def tiny(config: RunConfig, encoders: dict[str, Path], data: Path) -> RunConfig:
    """The configuration with two steps, few rows and a tiny encoder of the same depth."""
    model = config.model.model_dump()
    for key in ("encoder", "over"):
        for family, folder in encoders.items():
            if str(model.get(key)).startswith(family):
                model[key] = str(folder)
    if model["encoder"] == "bilstm":
        model |= {"width": 8}
    values = {
        "tasks": [{"name": name, "rows": ROWS} for name in config.task_names],
        "model": model,
        "budget": {"steps": 2, "rounds": 1, "batch": 4},
        "evaluate": {"examples": EXAMPLES, "every": 2 if config.unit == "steps" else 1},
        "data": str(data),
        "device": "cpu",
    }
    return changed(config, values, "test")


def contestants(recipe: Recipe, config: RunConfig, target: str) -> list[RunConfig]:
    """The configurations of a paper-scale recipe, one for each contestant or stage."""
    if recipe.autosem is not None:
        thompson = {"name": "thompson", "primary": target, "batches": 1}
        mixed = {"name": "cycle", "ratio": dict.fromkeys(config.task_names, 1)}
        return [changed(config, {"policy": policy}, "test") for policy in (thompson, mixed)]
    if recipe.paper.adapt is not None:
        return [config]
    specs = recipe.contestants_of("paper", target)
    share = 1 / len(config.tasks)
    return [
        contestant_config(config, spec)
        if spec == "alone" or "learned_from" not in spec
        else changed(
            config,
            {
                "policy": {
                    "name": "fixed",
                    "probabilities": dict.fromkeys(config.task_names, share),
                    "as": spec["as"],
                }
            },
            "test",
        )
        for spec in specs.values()
    ]


@pytest.mark.parametrize("name", TRAINED)
def test_two_steps_at_the_papers_size(
    name: str, all_data: Path, encoders: dict[str, Path], tmp_path: Path
) -> None:
    recipe = read_recipe(name)
    targets = recipe.targets or ("",)
    for target in targets if recipe.paper.by_target else targets[:1]:
        for panel in recipe.panels_of("paper"):
            config = recipe.config("paper", target, panel)
            for contestant in contestants(recipe, config, target):
                short = tiny(contestant, encoders, all_data)
                folder = tmp_path / target.replace("/", "-") / panel
                for job in jobs_of(short, 1, folder)[:2]:  # two of the tasks alone
                    result = run(job.config, job.folder)
                    assert set(result.tasks) == set(job.config.task_names)
                    if job.label != "alone":
                        check_measures(recipe, job, result)
                    if recipe.paper.adapt is not None:
                        check_adaptation(recipe, job.folder, tmp_path / "adapted")


def check_measures(recipe: Recipe, job: Job, result: Finished) -> None:
    for measure, names in recipe.measures.items():
        if not names or job.label in names:
            values = MEASURES[measure](result, job.folder).values()
            assert values
            assert all(math.isfinite(value) for value in values)


@pytest.mark.parametrize(
    ("name", "recipe", "contestant"),
    [("camtl-8", "camtl/table1", "mt_uncertainty"), ("camtl-24", "camtl/table4", "ca_mtl")],
)
def test_the_run_files_have_the_settings_of_the_recipes(
    name: str, recipe: str, contestant: str
) -> None:
    ours, other = load(ROOT / f"examples/{name}.yaml"), read_recipe(recipe)
    spec = other.contestants_of("paper")[contestant]
    same = contestant_config(other.config("paper"), spec)
    same = changed(same, {"model": same.model.model_dump() | {"encoder": ours.model.encoder}}, "")
    for key in ("tasks", "model", "loss", "budget", "optimizer", "evaluate"):
        assert getattr(ours, key) == getattr(same, key), key
    assert ours.decider["name"] == same.decider["name"]
    assert ours.seed in other.paper.seeds


@pytest.mark.parametrize("name", ["camtl-8", "camtl-24"])
def test_two_steps_of_the_run_files(
    name: str, all_data: Path, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = load(ROOT / f"examples/{name}.yaml")
    assert len(config.tasks) == int(name.rpartition("-")[2])
    result = run(tiny(config, encoders, all_data), tmp_path)
    assert set(result.tasks) == set(config.task_names)


def check_adaptation(recipe: Recipe, source: Path, out: Path) -> None:
    adaptation = recipe.paper.adapt
    assert adaptation is not None
    if 0 in adaptation.fractions:
        scores = zero_shot_scores(source, "scitail", out, None)
        assert {"random", "glue/mnli"} <= set(scores)
        return
    sets = ["budget.steps=2", "evaluate.every=2"]
    for contestant in recipe.contestants:
        new = NewTask(source, "scitail", 0.001, sets, contestant, 12, out, None)
        finished = new.train(Runner())
        assert finished is not None
        assert "scitail" in finished.tasks
