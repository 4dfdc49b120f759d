"""Where the logs of smoke tests lie: those of a rung that fails stay, in a folder of the doctor's own."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

import platformdirs

_KEPT = 10  # climbs
_LARGEST = 4 * 1024 * 1024  # bytes of one file of Ray's, of which the end is kept
_MOST = 200  # files of Ray's


def new_folder() -> Path:
    """A folder for the logs of this climb; those of the oldest ones are removed. Raises OSError when it cannot be made."""
    top = platformdirs.user_state_path("verl-doctor") / "smoke"
    top.mkdir(parents=True, exist_ok=True)
    older = sorted(path for path in top.iterdir() if os.path.isdir(path))
    for path in older[: max(0, len(older) - _KEPT + 1)]:
        shutil.rmtree(path, ignore_errors=True)
    folder = top / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{os.getpid()}"
    folder.mkdir()
    return folder


def keep_those_of_ray(private: Path, logs: Path) -> None:
    """Copy what the processes of Ray wrote below a private folder, before that is removed."""
    paths = [path for path in private.glob("**/ray/session_2*/logs/*") if os.path.isfile(path)]
    for path in sorted(paths)[:_MOST]:
        with contextlib.suppress(OSError):
            (logs / "ray").mkdir(parents=True, exist_ok=True)
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _LARGEST))
                (logs / "ray" / path.name).write_bytes(file.read())


def remove_empty(folder: Path) -> None:
    """Remove the folder of a climb of which nothing is kept."""
    with contextlib.suppress(OSError):
        folder.rmdir()
