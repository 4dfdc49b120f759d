"""The browser used by the tests: the named one, the installed one, or Qt's from the package index."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.environment import fetching, setting
from support.kept import cannot_run, kept

_NAMED = setting("VERL_DOCTOR_TEST_BROWSER", "")
_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "headless_shell",
)
_OPTIONS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
)
_QT = "6.11.2"
# The packages for Python take any release of Qt, but of two releases its halves do not fit together.
_PINS = ("PyQt6==6.11.0", f"PyQt6-Qt6=={_QT}", "PyQt6-WebEngine==6.11.0", f"PyQt6-WebEngine-Qt6=={_QT}")
_ENGINE = Path(__file__).with_name("engine.py")
_LIMIT = 600.0  # seconds of one command


def command() -> Sequence[str]:
    """Its start command. `VERL_DOCTOR_TEST_BROWSER` names one; "qt" is Qt's."""
    found = _NAMED or next((path for name in _NAMES if (path := shutil.which(name))), "qt")
    return _qt() if found == "qt" else (found, *_OPTIONS)


def _qt() -> Sequence[str]:
    """Return the Chromium in Qt, in an environment made once. Skips, or fails in CI, where it cannot be had or loaded."""
    name = f"environments/browser-{_QT}-{sys.version_info.major}.{sys.version_info.minor}"
    python = str(kept(name, _install) / "bin" / "python")
    load = [python, "-B", "-c", f"import {_ENGINE.stem}"]
    done = subprocess.run(
        load, cwd=_ENGINE.parent, check=False, capture_output=True, text=True, timeout=_LIMIT
    )
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2]
        cannot_run(f"no browser is installed, and that of Qt {_QT} cannot be loaded: {reason}")
    return (python, str(_ENGINE))


def _install(folder: Path) -> None:
    make = [sys.executable, "-m", "venv", str(folder)]
    pip = [str(folder / "bin" / "pip"), "install", "-q", "--no-cache-dir", "--only-binary", ":all:", *_PINS]
    try:
        for command in (make, pip):
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=_LIMIT, env=fetching()
            )
    except subprocess.CalledProcessError as error:
        cannot_run(
            f"no browser is installed, and that of Qt {_QT} could not be fetched: {error.stderr.strip()[-300:]}"
        )
    except subprocess.TimeoutExpired:
        cannot_run(
            f"no browser is installed, and that of Qt {_QT} was not there after {_LIMIT / 60:.0f} minutes"
        )
