"""The application, and the options and arguments that commands share."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
import typer.core

from taskmix.errors import UserError
from taskmix.training.launch import launched

if TYPE_CHECKING:
    from taskmix.config import RunConfig

MAX_SEEDS = 1000  # of a range
MAX_SENTENCE = 1000  # characters of a command's line in `taskmix --help`
GROUPS = {
    "starting": "To start",
    "running": "One run",
    "studies": "Studies of several runs",
    "recipes": "Experiments of the papers",
    "journals": "Better mixtures from finished runs",
    "pages": "Pages",
    "models": "Trained models",
}
"""The files of the commands, with their headings in `taskmix --help`."""
OTHER = "Others"
Function = TypeVar("Function", bound=Callable[..., None])


class Grouped(typer.core.TyperGroup):
    """The commands in their groups, each with its first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in GROUPS.values()}
        for name, entry in self.commands.items():
            assert isinstance(entry, typer.core.TyperCommand)
            groups.setdefault(str(entry.rich_help_panel), []).append(
                (name, entry.get_short_help_str(MAX_SENTENCE))
            )
        for title, rows in groups.items():
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="taskmix",
    cls=Grouped,
    help="Spends a training budget across tasks.\n\n"
    "Try `taskmix demo`, then `taskmix init FOLDER` with a folder of your own tables, and"
    " `taskmix run FILE` with its run file:\n\n"
    "\b\n"
    "    tasks: [glue/cola, glue/rte]\n"
    "    policy: exp3s\n"
    "    budget: {steps: 2000, batch: 16}",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DataOption = Annotated[
    str | None,
    typer.Option("--data", help="Folder of the official data sets; default: TASKMIX_DATA."),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-code", help="Import the classes of its own that the run or policy file names."
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")]
RunFile = Annotated[Path, typer.Argument(metavar="FILE", help="A run file.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. budget.steps=500."),
]
StudyFolder = Annotated[
    Path | None, typer.Option("--out", help="Folder of the study; default: studies/NAME.")
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="URL",
        help="postgresql://... that several machines share, or sqlite:///PATH.",
    ),
]
KeepOption = Annotated[
    bool,
    typer.Option("--keep-checkpoints", help="Keep the last checkpoint of finished runs."),
]
WorkersOption = Annotated[int, typer.Option(min=1, help="Processes on this machine.")]


def command(*examples: str) -> Callable[[Function], Function]:
    """Register a command; its help is its docstring, with the examples below it."""

    def register(function: Function) -> Function:
        # Click keeps the line breaks of a paragraph that begins with \b.
        parts = [inspect.getdoc(function) or "", "\b\n" + "\n".join(examples)]
        text = "\n\n".join(parts if examples else parts[:1])
        title = GROUPS.get(function.__module__.rpartition(".")[2], OTHER)
        return app.command(help=text, rich_help_panel=title)(function)

    return register


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Print the version if asked; refuse several ranks where a command uses one process."""
    name, ranks = context.invoked_subcommand, launched().count
    if ranks > 1 and name not in ("run", "resume"):
        raise UserError(
            f"{name}: expected one process, found {ranks} ranks; only run and resume"
            " train with several"
        )
    if show:
        import taskmix

        print(f"taskmix {taskmix.__version__}")
        raise typer.Exit


def folder_name(config: "RunConfig", file: Path) -> str:
    """Return the run file's `name`; without one, the name of the file."""
    # The name in the configuration stays: runs and studies are compared by it when they resume.
    return config.name if "name" in config.model_fields_set else file.stem


def values_of(text: str, option: str) -> list[Any]:
    """Return the values of an option that takes several, separated by commas."""
    from taskmix.config import read_value

    values = read_value(f"[{text}]", option)
    if not values:
        raise UserError(f"{option}: expected at least one value, found none")
    for value in values:
        if values.count(value) > 1:
            raise UserError(f"{option}: expected different values, found {value} twice")
    return list(values)


def seeds_of(seeds: str) -> list[int]:
    """Return the values of `--seeds`, in which `1-5` means the seeds from 1 to 5."""
    from taskmix.config import RunConfig, changed

    listed = re.sub(r"(?<![\w.-])(\d+)-(\d+)(?![\w.-])", _seed_range, seeds)
    values, config = values_of(listed, "--seeds"), RunConfig(tasks=["any"])
    return [changed(config, {"seed": seed}, "--seeds").seed for seed in values]


def _seed_range(match: re.Match[str]) -> str:
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + MAX_SEEDS:
        raise UserError(f"--seeds: expected a range of at most {MAX_SEEDS} seeds, found {match[0]}")
    return ",".join(map(str, range(first, last + 1)))
