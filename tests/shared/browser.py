"""A headless Chromium for tests of pages, over the DevTools protocol on a pipe."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "Chromium is not installed: pages are not opened in a browser"
SCREENSHOTS = Path(__file__).parents[2] / ".cache/screenshots"
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PATIENCE = 60.0


class Browser:
    """A page, with the errors of its console and the addresses that it asked for."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._rest, self._number = b"", 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._read], [], [], _PATIENCE)[0]:
                raise AssertionError(f"Chromium was silent for {_PATIENCE:.0f} seconds")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise AssertionError("Chromium ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.errors.append(str(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.errors.append(str(params["entry"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])

    def open(self, page: Path | str, width: int = 1400, dark: bool = False) -> Self:
        """Open a page and wait until it is loaded."""
        self.errors.clear()
        self.requests.clear()
        media = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[media])
        size = {"width": width, "height": 900, "deviceScaleFactor": 1}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)
        url = page.resolve().as_uri() if isinstance(page, Path) else page
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return self

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression in the page is true."""
        end = time.monotonic() + _PATIENCE
        while not self.run(condition):
            if time.monotonic() > end:
                raise AssertionError(f"never true: {condition}; errors: {self.errors}")
            time.sleep(0.02)

    def draw_all(self) -> None:
        """Scroll through the page until every figure is drawn."""
        for k in range(self.run("document.querySelectorAll('[data-figure]').length")):
            figure = f"document.querySelectorAll('[data-figure]')[{k}]"
            self.run(f"{figure}.scrollIntoView({{block: 'center'}})")
            self.wait(f"{figure}.dataset.drawn === 'yes'")
        self.run("scrollTo(0, 0)")

    def hover(self, x: float, y: float) -> None:
        """Move the mouse to a point of the screen."""
        for step in (5, 0):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x - step, y=y - step)

    def screenshot(self, name: str) -> None:
        """Write a picture of the whole page into `SCREENSHOTS`, for people to look at."""
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        (SCREENSHOTS / f"{name}.png").write_bytes(b64decode(picture["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium with a new profile in a folder."""
    assert CHROMIUM is not None, MISSING
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()

    def wire() -> None:  # Chromium reads commands from descriptor 3 and writes answers to 4
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        for descriptor, end in enumerate(ends, 3):
            os.dup2(end, descriptor)

    process = subprocess.Popen(
        [CHROMIUM, *_OPTIONS, f"--user-data-dir={folder}"],
        preexec_fn=wire,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(ours_out, ours_in)
    finally:
        process.terminate()
        process.wait()
        os.close(ours_out)
        os.close(ours_in)
