"""Chromium without a driver and without a package: for tests of pages, and for pictures of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Browser:
    """Chromium over its debugging pipe: a JSON object and a zero byte each way."""

    def __init__(self, profile: str) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        line = f"exec {CHROMIUM} {' '.join(FLAGS)} --user-data-dir={profile} about:blank 3<&{to_read} 4>&{to_write}"
        self._process = subprocess.Popen(
            ["bash", "-c", line], pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None, arguments: dict[str, Any]) -> Any:
        """Send a command and return its answer; what the browser tells meanwhile is kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def read(self) -> dict[str, Any]:
        """Return the next message, and keep it if it is an event."""
        while b"\0" not in self._rest:
            piece = os.read(self._read, 1 << 16)
            assert piece, "the browser closed its pipe"
            self._rest += piece
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        if "id" not in message:
            self.events.append(message)
        return message

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)


class Tab:
    """One page of the browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", None, {"url": "about:blank"})["targetId"]
        attached = browser.call("Target.attachToTarget", None, {"targetId": self._target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **arguments: Any) -> Any:
        return self._browser.call(method, self._session, arguments)

    def _events(self, *methods: str) -> list[dict[str, Any]]:
        mine = (event for event in self._browser.events if event.get("sessionId") == self._session)
        return [event for event in mine if event["method"] in methods]

    def open(self, url: str, *, width: int = 1000, height: int = 1300, dark: bool = False) -> None:
        """Go to an address and return when the page and all that it asked for have arrived, or were refused."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        before = len(self._events("Page.loadEventFired"))
        self.call("Page.navigate", url=url)
        while len(self._events("Page.loadEventFired")) == before:
            self._browser.read()

    def value(self, expression: str) -> Any:
        """Return what an expression is in the page, as JSON has it; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until something is true, however long that takes; a page that never gets there runs into pytest's limit."""
        self.value(
            f"new Promise(done => {{ const look = () => {expression} ? done() : setTimeout(look, 5); look(); }})"
        )

    def press_at(self, selector: str, share: float = 0.5) -> None:
        """Bring an element into view and click on it, at a share of its width."""
        box = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            "const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
        )
        place = {"x": box[0] + share * box[2], "y": box[1] + box[3] / 2, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, **place)

    def press_key(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def complaints(self) -> list[Any]:
        """Return everything that the console, the log or a script's failure said."""
        self.value("1")  # what was said before this answer has been read now
        return self._events("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")

    def requested(self) -> list[str]:
        """Return the addresses that the page asked for."""
        return [event["params"]["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", None, {"targetId": self._target})
        self._browser.events.clear()
