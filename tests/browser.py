# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Chromium without a window, by its DevTools protocol over a pipe, without another library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
FLAGS += ["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-dev-shm-usage"]
FLAGS += ["--remote-debugging-pipe", "about:blank"]
LIMIT_S = 60


class Browser:
    """A browser with one tab; records what the page logs and requests."""

    def __init__(self) -> None:
        assert PROGRAM, "chromium is not installed: apt-get install chromium"
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        self._profile = tempfile.mkdtemp(prefix="pages-")
        # The browser reads from file 3 and writes to file 4.
        inside = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        self._process = subprocess.Popen(
            [*("bash", "-c", inside, "-", PROGRAM), *FLAGS, f"--user-data-dir={self._profile}"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session = b"", 0, ""
        self.logged: list[str] = []
        self.requested: list[str] = []
        self._loaded = False
        pages = [
            each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"
        ]
        target = {"targetId": pages[0]["targetId"], "flatten": True}
        self._session = self.call("Target.attachToTarget", **target)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(LIMIT_S)
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        sent = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            sent["sessionId"] = self._session
        os.write(self._out, json.dumps(sent).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, f"{method}: {found['error']}"
                return found["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._in, 1 << 20)
            assert read, "the browser has exited"
            self._buffer += read
        one, _end, self._buffer = self._buffer.partition(b"\0")
        found = json.loads(one)
        method, given = found.get("method", ""), found.get("params", {})
        if method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
            self.logged.append(str([each.get("value") for each in given["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.logged.append(str(given["exceptionDetails"]))
        elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
            self.logged.append(given["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requested.append(given["request"]["url"][:300])
        elif method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Page.javascriptDialogOpening":
            self.logged.append(f"dialog: {given['message']}")
            raise AssertionError(self.logged[-1])
        return found

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> float:
        """Load a file; seconds until it is loaded and drawn."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.logged.clear()
        self.requested.clear()
        self._loaded, begin = False, time.monotonic()
        self.call("Page.navigate", url=page.as_uri())
        while not self._loaded:
            self._next()
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(() => done(1))))")
        return time.monotonic() - begin

    def run(self, script: str) -> Any:
        """The value of an expression, or of its promise."""
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        found = self.call("Runtime.evaluate", **given)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))
