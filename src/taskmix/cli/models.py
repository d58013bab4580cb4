"""Commands that use trained models."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taskmix.cli.base import DataOption, QuietOption, RunFolder, TrustOption, command
from taskmix.cli.terminal import busy, err, out, print_tables
from taskmix.errors import UserError
from taskmix.tables import hundredths

if TYPE_CHECKING:
    from taskmix.training.folder import Scores
    from taskmix.training.inference import Prediction

FORMATS = ("jsonl", "glue", "mrqa")


@command(
    "taskmix evaluate runs/small-glue",
    "taskmix evaluate runs/small-glue --split test --task mine",
)
def evaluate(
    folder: RunFolder,
    split: Annotated[str, typer.Option(help="The split to score on.")] = "dev",
    task: Annotated[
        str | None, typer.Option(help="One of the run's tasks; default: all of them.")
    ] = None,
    data: DataOption = None,
    trust: TrustOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score the model of a finished run; tasks without labels in the split are named."""
    from taskmix.report.run_body import scores_table
    from taskmix.training.folder import config_of
    from taskmix.training.inference import load_run

    with busy("scoring"):
        scores = load_run(folder, data=data, trust_code=trust).evaluate(split, task)
    score = mean(value.score for value in scores.values())
    if quiet:
        out.print(f"{100 * score:.2f}")
    else:
        print_tables([scores_table(scores, mean=score)])
        limit = config_of(folder).evaluate.examples
        if split == "dev" and limit and any(s.examples > limit for s in scores.values()):
            out.print(f"All dev examples were scored; the run scored at most {limit} of each task.")


@command(
    "taskmix predict runs/small-glue --task glue/rte new.tsv",
    "taskmix predict runs/small-glue --task glue/rte new.tsv --ids --probabilities",
    "taskmix predict runs/small-glue --task glue/rte - --input-format jsonl < new.jsonl",
    "taskmix predict runs/small-glue --task glue/rte test --format glue --out submission",
)
def predict(
    folder: RunFolder,
    source: Annotated[
        str,
        typer.Argument(
            metavar="INPUT", help="A file like the task's own, a split, or - for standard input."
        ),
    ],
    task: Annotated[str, typer.Option(help="One of the run's tasks.")],
    style: Annotated[
        str,
        typer.Option(
            "--format",
            help="jsonl; mrqa for one mapping of ids to answers; "
            "glue for a benchmark's submission file.",
        ),
    ] = "jsonl",
    ids: Annotated[
        bool, typer.Option("--ids", help="Print each row's id with its answer.")
    ] = False,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Print the probabilities of the answers.")
    ] = False,
    input_format: Annotated[
        str | None,
        typer.Option("--input-format", help="The format of INPUT, if its name does not show it."),
    ] = None,
    to: Annotated[Path, typer.Option("--out", help="Folder of submission files.")] = Path(
        "submission"
    ),
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing submission file.")
    ] = False,
    data: DataOption = None,
    trust: TrustOption = False,
) -> None:
    """Predict each row of a file or split, one JSON value a line."""
    from taskmix.errors import unknown
    from taskmix.tasks.submissions import mrqa_lines, submission_file, write_submission
    from taskmix.training.inference import load_run

    if style not in FORMATS:
        raise unknown("format", style, FORMATS, "--format")
    if style == "glue":
        submission_file(to, task, source, force=force)  # before anything is computed
    with busy("predicting"), _input_file(source) as place:
        trained = load_run(folder, data=data, trust_code=trust)
        predictions = trained.predictions(task, place, format=input_format)
    if probabilities and predictions[0].probability is None:
        raise UserError(f"--probabilities: a task such as {task} has none")
    _warn_of_guesses(task, trained.result.tasks[task])
    if style == "glue":
        answers = [prediction.answer for prediction in predictions]
        written = write_submission(to, trained.task(task), source, answers, force=force)
        out.print(str(written), soft_wrap=True)
    elif style == "mrqa":
        print(*mrqa_lines((p.id, p.answer) for p in predictions), sep="\n")
    else:
        for prediction in predictions:
            print(json.dumps(_json_of(prediction, ids, probabilities), ensure_ascii=False))


def _warn_of_guesses(task: str, scores: "Scores") -> None:
    if scores.baseline is not None and scores.score <= scores.baseline:
        err.print(
            f"taskmix: {task}: the model scored {hundredths(scores.score)}, not above the baseline "
            f"of a constant prediction, {hundredths(scores.baseline)}",
            soft_wrap=True,
        )


def _json_of(prediction: "Prediction", ids: bool, probabilities: bool) -> Any:
    if not ids and not probabilities:
        return prediction.answer
    values = {"id": prediction.id} if ids else {}
    values["answer"] = prediction.answer
    return values | ({"probabilities": prediction.probability} if probabilities else {})


@contextmanager
def _input_file(source: str) -> Iterator[str]:
    """Give a file that can be read twice; standard input is saved to one."""
    if source not in ("-", "/dev/stdin"):
        yield source
        return
    import shutil
    import tempfile

    if sys.stdin is None:
        raise UserError("standard input: expected rows to predict, found it closed")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "standard-input")
        with path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield str(path)
        except UserError as error:  # the user does not know the copy by its name
            raise UserError(str(error).replace(str(path), "standard input")) from None


@command("taskmix export runs/small-glue --task glue/rte rte-model")
def export(
    folder: RunFolder,
    to: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    task: Annotated[str, typer.Option(help="One of the run's tasks.")],
    adapters: Annotated[
        bool, typer.Option(help="Write only the adapters of a language model, for peft.")
    ] = False,
) -> None:
    """Write one task's model as a folder that plain transformers loads."""
    from taskmix.models.export import export as export_task
    from taskmix.training.folder import MODEL, finished

    finished(folder)
    with busy("exporting"):
        export_task(folder / MODEL, task, to, adapters=adapters)
    out.print(f"Written: {to}", soft_wrap=True)
    if not adapters:
        out.print(f"Load it: {_loading_line(to)}", soft_wrap=True)


def _loading_line(folder: Path) -> str:
    """Return the Python expression that loads an exported model."""
    values = json.loads((folder / "config.json").read_text())
    classes = [name for name in values.get("auto_map", ()) if name.startswith("AutoModel")]
    trust = ", trust_remote_code=True" if classes else ""
    [cls, *_] = classes or values["architectures"]
    return f"transformers.{cls}.from_pretrained({str(folder)!r}{trust})"
