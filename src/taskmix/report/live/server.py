"""The server of the live page. It reads journals below one folder, and nothing else."""

import gzip
import json
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taskmix.errors import TaskmixError
from taskmix.report.live.growing import GrowingRun, glimpse
from taskmix.studies.autosem.result import RESULT as AUTOSEM
from taskmix.studies.compare import SETTINGS as COMPARISON
from taskmix.studies.compare import is_diverged
from taskmix.studies.storage import FILE as STORAGE
from taskmix.studies.tune import SETTINGS as TUNING
from taskmix.training.folder import JOURNAL, SCORES

STUDY_FILES = {COMPARISON, TUNING, AUTOSEM, STORAGE}  # one is in the folder of a study
MAX_DEPTH = 6  # of folders below the one that is served
MAX_RUNS = 2000
MAX_VIEWS = 256  # runs whose curves are in memory
READING_SECONDS = 0.25  # of one answer; the next one goes on
MAX_AGE = 1.0  # seconds for which all pages get the same answer
GZIP_LEVEL = 4  # larger ones cost several times the CPU and save 5%
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
}


class SharedAnswer:
    """JSON that all pages get, made again when it is older than `MAX_AGE`.

    Args:
        make: returns the version of the values, the values, and whether they are complete: if not,
            the next request has them made again at once.
    """

    def __init__(self, make: Callable[[], tuple[str, dict[str, Any], bool]]) -> None:
        self._make = make
        self._lock = Lock()
        self._fresh_until = 0.0
        self._complete = False
        self._version = ""
        self._body = b""

    def response(self, request: Request) -> Response:
        """Return the values, or nothing where the page has this version of them."""
        with self._lock:
            if time.monotonic() >= self._fresh_until:
                self._version, values, self._complete = self._make()
                head = {"version": self._version, "complete": self._complete}
                self._body = _gzipped(json.dumps(head | values, allow_nan=False))
                self._fresh_until = time.monotonic() + MAX_AGE * self._complete
            if self._complete and request.query_params.get("have") == self._version:
                return Response(status_code=204)
            return _unpacked_if_needed(request, self._body, "application/json")


class Views:
    """The runs below a folder, and those of them that were asked for, as far as they were read."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.runs = SharedAnswer(self._list)
        self._views: OrderedDict[str, SharedAnswer] = OrderedDict()
        self._lock = Lock()
        self._lines: dict[str, tuple[tuple[int, int, bool], dict[str, Any]]] = {}

    def _below(self, folder: Path, depth: int = 0, study: str = "") -> Iterator[tuple[str, str]]:
        """Yield each run folder and its study; symbolic links are not followed."""
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        name = folder.relative_to(self.root).as_posix()
        if any(entry.name in STUDY_FILES for entry in entries):
            study = name
        for entry in entries:
            if entry.name == JOURNAL and entry.is_file(follow_symlinks=False):
                yield name, study
            elif depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                yield from self._below(folder / entry.name, depth + 1, study)

    def _list(self) -> tuple[str, dict[str, Any], bool]:
        places = islice(sorted(self._below(self.root)), MAX_RUNS)
        lines = [self.line(name) | {"study": study} for name, study in places]
        return "", {"folder": self.root.name, "runs": lines}, True

    def view(self, name: str) -> SharedAnswer | None:
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
            if name not in self._views:
                run = GrowingRun(folder)
                self._views[name] = SharedAnswer(lambda: self._curves(name, run))
            view = self._views[name]
            self._views.move_to_end(name)
            if len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        return view

    def line(self, name: str) -> dict[str, Any]:
        """Return the line of a run in the list, read again if its journal has changed."""
        folder = self.root / name
        try:
            status = (folder / JOURNAL).stat()
            ended = (folder / SCORES).exists() or is_diverged(folder)
            version = (status.st_size, status.st_mtime_ns, ended)
            if name not in self._lines or self._lines[name][0] != version:
                self._lines[name] = version, {"modified": status.st_mtime} | glimpse(folder)
        except (TaskmixError, OSError) as error:
            return {"id": name, "error": str(error)}
        return {"id": name} | self._lines[name][1]

    def _curves(self, name: str, run: GrowingRun) -> tuple[str, dict[str, Any], bool]:
        complete = run.read(READING_SECONDS)
        line = self.line(name)
        return f"{run.position}-{line.get('finished')}", line | run.data(), complete


class Secured:
    """Adds the headers that forbid pages to load or send anything elsewhere."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self.app(scope, receive, with_headers)


def application(root: Path, host: str = LOCAL[0]) -> Starlette:
    """Return the application that shows the runs below a folder."""
    views = Views(root)
    _plotly_script()  # before the first page asks for it

    def asset(request: Request) -> Response:
        name, media_type = ASSETS[request.url.path]
        text = files("taskmix.report.live").joinpath(name).read_text(encoding="utf-8")
        return Response(text, media_type=media_type)

    def runs(request: Request) -> Response:
        return views.runs.response(request)

    def run(request: Request) -> Response:
        view = views.view(request.path_params["name"])
        if view is None:
            return JSONResponse({"error": "no such run"}, status_code=404)
        try:
            return view.response(request)
        except TaskmixError as error:
            return JSONResponse({"error": str(error)}, status_code=422)

    return Starlette(
        routes=[
            *(Route(path, asset) for path in ASSETS),
            Route("/plotly.js", _plotly),
            Route("/api/runs", runs),
            Route("/api/run/{name:path}", run),
        ],
        middleware=[
            Middleware(Secured),
            # Another site whose name was made to point here sends its own name (DNS rebinding).
            Middleware(TrustedHostMiddleware, allowed_hosts=[*LOCAL, host], www_redirect=False),
        ],
    )


def _plotly(request: Request) -> Response:
    """Return plotly's script; the browser keeps it, compiled, and asks whether it is the same."""
    tag, script = _plotly_script()
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    response = _unpacked_if_needed(request, script, "text/javascript")
    response.headers.update(headers)
    return response


@cache
def _plotly_script() -> tuple[str, bytes]:
    from plotly.offline import get_plotlyjs, get_plotlyjs_version

    return f'"{get_plotlyjs_version()}"', _gzipped(get_plotlyjs())


def _gzipped(text: str) -> bytes:
    return gzip.compress(text.encode(), GZIP_LEVEL, mtime=0)


def _unpacked_if_needed(request: Request, packed: bytes, media_type: str) -> Response:
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return Response(gzip.decompress(packed), media_type=media_type)
    headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
    return Response(packed, headers=headers, media_type=media_type)


def free_port(host: str, first: int) -> int:
    """Return the first free port from this one on."""
    for port in range(first, first + 100):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if probe.connect_ex((host, port)) != 0:
                return port
    return first
