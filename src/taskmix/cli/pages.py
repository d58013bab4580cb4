"""Commands for pages: the report of finished runs, and the live page."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from taskmix.cli.base import command
from taskmix.cli.terminal import out
from taskmix.errors import UserError


@command("taskmix report runs/small-glue", "taskmix report studies/small-glue --baseline random")
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a run or of a study.")
    ],
    baseline: Annotated[
        str | None,
        typer.Option(help="In a study, the policy that the others are compared with."),
    ] = None,
) -> None:
    """Write report.html of a run, finished or not, or of a study into its folder."""
    from taskmix.report.page import write_report

    out.print(f"Report: {write_report(folder, baseline)}", soft_wrap=True)


@command("taskmix ui", "taskmix ui runs --port 8100")
def ui(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of the runs and studies.")
    ] = Path(),
    port: Annotated[int, typer.Option(min=1, max=65535, help="The first port to try.")] = 8100,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on. Any other than 127.0.0.1 lets others look."),
    ] = "127.0.0.1",
) -> None:
    """Show the runs below a folder in a browser, while they train. Nothing is written."""
    if not folder.is_dir():
        raise UserError(f"{folder}: expected a folder of runs, found none")
    if any(find_spec(library) is None for library in ("starlette", "uvicorn", "plotly")):
        raise UserError("taskmix ui needs starlette, uvicorn and plotly; pip install 'taskmix[ui]'")
    import uvicorn

    from taskmix.report.live.server import application, free_port

    port = free_port(host, port)
    address = f"[{host}]" if ":" in host else host
    out.print(f"http://{address}:{port} shows the runs below {folder.resolve()}. Ctrl-C ends it.")
    uvicorn.run(application(folder, host), host=host, port=port, log_level="warning")
