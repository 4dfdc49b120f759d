"""A real browser that shows a page, controlled through a pair of pipes, without a driver.

`browser_here` chooses the browser. It uses the DevTools protocol
(https://chromedevtools.github.io/devtools-protocol/) as JSON with a zero byte after each message.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

_PATIENCE = 180  # seconds for one answer


class Tab:
    """One page of a browser. `events` are all events received so far."""

    def __init__(self, writing: int, reading: int) -> None:
        self._writing, self._reading = writing, reading
        self._rest = b""
        self._last = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []

    def attach(self) -> None:
        """Open an empty page and record its events."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **given: Any) -> Any:
        """Send a command and wait for the result. Raises RuntimeError if the browser refuses or does not respond."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": given}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _PATIENCE
        while True:
            heard = self._heard(until)
            if heard.get("id") != self._last:
                self.events.append(heard)
            elif "error" in heard:
                raise RuntimeError(f"{method}: {heard['error']['message']}")
            else:
                return heard["result"]

    def _heard(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._reading, 1 << 20) if ready else b""
            if not piece:
                raise RuntimeError("the browser says nothing")
            self._rest += piece
        first, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(first))

    def open(self, page: Path) -> None:
        """Show a file, and wait until it is loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        self.run(
            "new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', () => done()))"
        )

    def run(self, script: str) -> Any:
        """Result of a script in the page."""
        done = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            raise RuntimeError(done["exceptionDetails"]["exception"].get("description", script))
        return done["result"].get("value")

    def media(self, kind: str = "", **features: str) -> None:
        """Emulate screen or print, and preferences: `prefers_color_scheme="dark"`."""
        wanted = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.ask("Emulation.setEmulatedMedia", media=kind, features=wanted)

    def size(self, width: int, height: int = 800) -> None:
        """Show it so many pixels wide."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key and let it go."""
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.ask("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **common)

    def told(self, *methods: str) -> Sequence[dict[str, Any]]:
        """Parameters of the events with these names."""
        return [event["params"] for event in self.events if event.get("method") in methods]


@contextlib.contextmanager
def browsing(command: Sequence[str]) -> Iterator[Tab]:
    """Command that starts a browser with a temporary profile; it is ended and removed afterwards."""
    to_browser, from_here = os.pipe()
    to_here, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(
        prefix="verl-doctor-browser-",
        ignore_cleanup_errors=True,  # its helpers may still write there
    ) as profile:
        # Its end of the pipes are descriptors 3 and 4. The shell is replaced by the browser.
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        process = subprocess.Popen(
            ["bash", "-c", script, *command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile, "XDG_RUNTIME_DIR": profile},
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        tab = Tab(from_here, to_here)
        try:
            tab.attach()
            yield tab
        finally:
            os.close(from_here)  # it ends when nobody can ask it anything any more
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
            os.close(to_here)
