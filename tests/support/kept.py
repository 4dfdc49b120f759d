"""Files that tests fetch or build once and keep between runs: by one process at a time, and atomically."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from support.environment import setting
from support.trying import IN_CI

CACHE = Path(setting("VERL_DOCTOR_TEST_CACHE", str(Path.home() / ".cache" / "verl-doctor-tests")))
"""The folder of everything that is kept."""


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of this name, made by `make` unless an earlier run has. Shared by all tests: read it, never change it.

    It is made where it stays, as the scripts of an environment name their interpreter by its full path.
    """
    folder = CACHE / name
    whole = folder.with_name(f"{folder.name}.whole")
    if not whole.exists():
        whole.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not whole.exists():
                shutil.rmtree(folder, ignore_errors=True)
                make(folder)
                whole.touch()
    return folder


def cannot_run(reason: str) -> None:
    """Skip on a developer's machine; in CI a real test that cannot run is a failure."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
