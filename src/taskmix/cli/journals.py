"""Commands that learn from the journals of finished runs."""

import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from taskmix.cli.base import (
    DataOption,
    QuietOption,
    RunFile,
    Sets,
    StudyFolder,
    TrustOption,
    WorkersOption,
    command,
    folder_name,
)
from taskmix.cli.terminal import out, print_report, print_sentence, print_tables, showing
from taskmix.errors import UserError

if TYPE_CHECKING:
    from taskmix.studies.improve import ImproveSettings

RewardOption = Annotated[
    str,
    typer.Option(
        help="room_left, prediction_gain, mean_reward or absolute_advantage; auto: mean_reward if "
        "the journals have rewards and no losses, otherwise room_left."
    ),
]


@command(
    "taskmix estimate runs/small-glue --policy policy.yaml",
    "taskmix estimate runs/small-glue --policy task_size",
)
def estimate(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders or journals.")],
    policy: Annotated[str, typer.Option(help="A policy file, or the name of a policy.")],
    method: Annotated[
        str, typer.Option(help="is, wis, clipped_is, dm, dr, sndr or switch_dr.")
    ] = "wis",
    pool: Annotated[str, typer.Option(help="own or balance.")] = "own",
    reward: RewardOption = "auto",
    trust: TrustOption = False,
) -> None:
    """Estimate the reward of a policy at the states that finished runs visited.

    A policy that learns is replayed on the journals, and is judged by its distribution at each
    step.
    """
    from taskmix.studies.improve import estimate as estimate_policy

    with _short_warnings():
        result = estimate_policy(
            runs,
            Path(policy) if Path(policy).is_file() else policy,
            method=method,
            pool=pool,
            reward=reward,
            trust_code=trust,
        )
        print_tables(result.tables())


@command(
    "taskmix improve runs/small-glue -o policy.yaml",
    "taskmix run small-glue.yaml --set policy=policy.yaml --out runs/better",
    "taskmix improve --from rewards --iterations 2 small-glue.yaml",
)
def improve(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Run folders, oldest first; or a run file."),
    ],
    to: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The policy file; with a run file, the folder."),
    ] = None,
    evidence: Annotated[
        Literal["objective", "scores", "losses", "rewards"],
        typer.Option(
            "--from",
            help="Learn from the evaluations: the measure of the runs' objective, scores or "
            "losses; or from the rewards of single draws (Glover and Hokamp 2019).",
        ),
    ] = "objective",
    floor: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The least share of a task.")
    ] = 0.02,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    iterations: Annotated[
        int, typer.Option(min=0, help="Rewards, with a run file: how often to run and improve.")
    ] = 0,
    weight: Annotated[
        str,
        typer.Option(
            "--entropy-weight", help="Rewards: weight of the policy's entropy; auto: from the runs."
        ),
    ] = "auto",
    solver: Annotated[str, typer.Option(help="Rewards: exact or cmaes.")] = "exact",
    pool: Annotated[str, typer.Option(help="Rewards: own, balance or last.")] = "own",
    phases: Annotated[
        int, typer.Option(min=1, help="Rewards: phases of a policy that changes over the run.")
    ] = 1,
    reward: RewardOption = "auto",
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a policy file that taskmix did not write.")
    ] = False,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Learn a better mixture or policy from finished runs.

    By default, each task's learning curve is fitted to its dev scores, and the policy has the fixed
    shares with the highest expected objective.
    """
    from taskmix.offpolicy.curves import LearnedMixture
    from taskmix.studies.improve import ImproveSettings
    from taskmix.studies.improve import improve as improve_policy

    options: dict[str, Any] = {
        "entropy_weight": _weight(weight),
        "solver": solver,
        "pool": pool,
        "phases": phases,
        "reward": reward,
    }
    if iterations:
        if evidence != "rewards":
            raise UserError("--iterations: expected --from rewards; see `taskmix tune` for scores")
        _improve_loop(sources, iterations, to, ImproveSettings(**options), force, data, quiet)
        return
    path = to or Path("policy.yaml")
    with _short_warnings():
        result = improve_policy(
            sources, path, evidence=evidence, floor=floor, force=force, **options
        )
    if json:
        print(dumps(asdict(result), indent=2))
        return
    print_tables(result.tables())
    out.print(f"Written: {path}", soft_wrap=True)
    changed = isinstance(result, LearnedMixture) and result.changed
    if changed and (command := _comparison_command(sources[-1], path)):
        out.print(f"Test the forecast: {command}", soft_wrap=True)


def _comparison_command(run: Path, policy: Path) -> str:
    """Return the command that compares a run's policy with a policy file; nothing for a journal."""
    from taskmix.config import write_value
    from taskmix.training.folder import RUN, config_of

    if not (run / RUN).exists():
        return ""
    decider = {key: value for key, value in config_of(run).decider.items() if key != "forecast"}
    before = decider["name"] if len(decider) == 1 else write_value(decider, on_one_line=True)
    policies = shlex.quote(f"{before.strip()}, {policy}")
    return f"taskmix compare {shlex.quote(str(run / RUN))} --policies {policies} --seeds 1-5"


@command(
    "taskmix tune small-glue.yaml --runs 2",
    "taskmix tune small-glue.yaml --runs 2 --pilot-budget 500",
    "taskmix tune small-glue.yaml --repeats 4 --workers 2",
)
def tune(
    file: RunFile,
    runs: Annotated[int, typer.Option(min=1, help="Runs after the pilot.")] = 1,
    pilot_budget: Annotated[
        int | None, typer.Option(min=1, help="Steps of the pilot; default: those of the run file.")
    ] = None,
    floor: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="The least share of a task.")
    ] = 0.02,
    repeats: Annotated[
        int, typer.Option(min=1, help="How often each run is made, with different seeds.")
    ] = 1,
    workers: WorkersOption = 1,
    sets: Sets = None,
    to: StudyFolder = None,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run a pilot, learn better shares from its scores, run with them, and so on.

    Each run learns from all runs before it. The same command continues after an interruption, or
    adds runs. Workers divide the repeats of a run among them.
    """
    from taskmix import config as configs
    from taskmix.report.page import write_report
    from taskmix.studies.tune import tune as tune_mixture

    config = configs.load(file, sets or (), data)
    folder = to or Path("studies") / f"{folder_name(config, file)}-tuned"
    with showing(quiet, workers, (runs + 1) * repeats) as view:
        tuning = tune_mixture(
            config,
            runs,
            folder,
            pilot_budget=pilot_budget,
            floor=floor,
            repeats=repeats,
            workers=workers,
            watch=view,
        )
    print_tables(tuning.tables())
    print_sentence(tuning.verdict())
    out.print(f"Folder: {folder}", soft_wrap=True)
    print_report(lambda: write_report(folder))


def _weight(text: str) -> "float | Literal['auto']":
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise UserError(f"--entropy-weight: expected a number or auto, found {text!r}") from None


def _improve_loop(
    sources: list[Path],
    iterations: int,
    to: Path | None,
    settings: "ImproveSettings",
    force: bool,
    data: str | None,
    quiet: bool,
) -> None:
    from taskmix import config as configs
    from taskmix.studies.improve import improve_loop
    from taskmix.training.folder import finished

    if len(sources) != 1:
        raise UserError("--iterations: expected one run file, found " + " ".join(map(str, sources)))
    config = configs.load(sources[0], (), data)
    folder = to or Path("studies") / f"{folder_name(config, sources[0])}-improved"
    with showing(quiet) as view, _short_warnings():
        stages = improve_loop(config, iterations, folder, settings, force, watch=view)
    for stage in stages:
        if stage.learned is not None and not quiet:
            print_tables(stage.learned.tables())
        out.print(f"{stage.folder}: {100 * finished(stage.folder).score:.2f}", soft_wrap=True)


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Print each warning as one sentence."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        print(f"taskmix: {warning.message}", file=sys.stderr)
