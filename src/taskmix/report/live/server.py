"""The server of the live page. It reads journals below one folder, and nothing else."""

import os
import socket
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskmix.errors import TaskmixError
from taskmix.report.live.growing import GrowingRun, glimpse
from taskmix.training.folder import JOURNAL, SCORES

MAX_DEPTH = 6  # of folders below the one that is served
MAX_RUNS = 2000
MAX_VIEWS = 256  # runs whose curves are in memory
READING_SECONDS = 0.25  # of one answer; the next one goes on
LOCAL = ("127.0.0.1", "localhost", "[::1]")
ASSETS = {
    "/": ("live.html", "text/html"),
    "/live.js": ("live.js", "text/javascript"),
    "/live.css": ("live.css", "text/css"),
}
HEADERS = {
    # Plotly sets styles by script.
    "content-security-policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Views:
    """The runs below a folder, and those of them that were asked for, as far as they were read."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._views: OrderedDict[str, GrowingRun] = OrderedDict()
        self._lock = Lock()
        self._lines: dict[str, tuple[tuple[int, int, bool], dict[str, Any]]] = {}
        self._answers: dict[str, tuple[int, bytes]] = {}

    def names(self) -> Iterator[str]:
        """Yield the run folders in order; symbolic links are not followed."""
        yield from sorted(self._below(self.root, 0))

    def _below(self, folder: Path, depth: int) -> Iterator[str]:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        for entry in entries:
            if entry.name == JOURNAL and entry.is_file(follow_symlinks=False):
                yield folder.relative_to(self.root).as_posix()
            elif depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                yield from self._below(folder / entry.name, depth + 1)

    def view(self, name: str) -> GrowingRun | None:
        """Return a run by the path of its folder; None unless the folder holds a journal."""
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\0" in name:
            return None
        folder = self.root / parts
        journal = folder / JOURNAL
        # A path with a symbolic link in it resolves to another one.
        if folder.resolve() != folder or journal.is_symlink() or not journal.is_file():
            return None
        with self._lock:
            view = self._views.setdefault(name, GrowingRun(folder))
            self._views.move_to_end(name)
            if len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        return view

    def line(self, name: str) -> dict[str, Any]:
        """Return the line of a run in the list, read again if its journal has changed."""
        folder = self.root / name
        try:
            status = (folder / JOURNAL).stat()
            version = (status.st_size, status.st_mtime_ns, (folder / SCORES).exists())
            if name not in self._lines or self._lines[name][0] != version:
                self._lines[name] = version, {"modified": status.st_mtime} | glimpse(folder)
        except (TaskmixError, OSError) as error:
            return {"id": name, "error": str(error)}
        return {"id": name} | self._lines[name][1]

    def answer(self, view: GrowingRun, complete: bool) -> Response:
        """Return the curves of a run, made once for all pages that show it."""
        name, position = view.folder.relative_to(self.root).as_posix(), view.position
        if name not in self._answers or self._answers[name][0] != position:
            values = {"position": position, "complete": complete} | self.line(name) | view.data()
            self._answers[name] = position, bytes(JSONResponse(values).body)
            while len(self._answers) > MAX_VIEWS:
                self._answers.pop(next(iter(self._answers)))
        # Middleware changes the headers of a response, so that none is sent twice.
        return Response(self._answers[name][1], media_type="application/json")


class Secured:
    """Adds the headers that forbid pages to load or send anything elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self.app(scope, receive, with_headers)


def application(root: Path, host: str = LOCAL[0]) -> Starlette:
    """Return the application that shows the runs below a folder."""
    views = Views(root)

    def asset(request: Request) -> Response:
        name, media_type = ASSETS[request.url.path]
        text = files("taskmix.report.live").joinpath(name).read_text(encoding="utf-8")
        return Response(text, media_type=media_type)

    def plotly(request: Request) -> Response:
        return Response(_plotly(), media_type="text/javascript")

    def runs(request: Request) -> Response:
        lines = [views.line(name) for name in islice(views.names(), MAX_RUNS)]
        return JSONResponse({"folder": views.root.name, "runs": lines})

    def run(request: Request) -> Response:
        view = views.view(request.path_params["name"])
        if view is None:
            return JSONResponse({"error": "no such run"}, status_code=404)
        try:
            complete = view.read(READING_SECONDS)
        except TaskmixError as error:
            return JSONResponse({"error": str(error)}, status_code=422)
        if complete and request.query_params.get("have") == str(view.position):
            return Response(status_code=204)
        return views.answer(view, complete)

    return Starlette(
        routes=[
            *(Route(path, asset) for path in ASSETS),
            Route("/plotly.js", plotly),
            Route("/api/runs", runs),
            Route("/api/run/{name:path}", run),
        ],
        middleware=[
            Middleware(Secured),
            # Another site whose name was made to point here sends its own name (DNS rebinding).
            Middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL, host], www_redirect=False),
            Middleware(GZipMiddleware, minimum_size=2000),
        ],
    )


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def free_port(host: str, first: int) -> int:
    """Return the first free port from this one on."""
    for port in range(first, first + 100):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex((host, port)) != 0:
                return port
    return first
