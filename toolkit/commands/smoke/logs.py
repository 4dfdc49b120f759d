"""The logs of smoke tests: those of a rung that fails are kept in the doctor's own folder."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.process.locked_folder import LOCK, abandoned, owned
from verl_doctor.toolkit.system import own_folders
from verl_doctor.toolkit.system.errors import os_error_text

_KEPT = 10  # climbs
_LARGEST = 4 * 1024 * 1024  # bytes of one Ray file, of which the end is kept
_MOST = 200  # files of Ray
_LONG_AGO = 24 * 3600.0  # seconds
_PREFIX = "verl-doctor-smoke-"


@contextlib.contextmanager
def log_folder(show: Callable[[str], None]) -> Iterator[Path]:
    """Provide a folder for the logs of this climb, removed if nothing is kept.

    The oldest logs of completed climbs are removed.

    On some machines the doctor's state folder is not writable: then it is among temporary files, which is
    reported. Raises OSError if there is no place for those either.
    """
    folder = _new_folder(show)
    with owned(folder):
        try:
            yield folder
        finally:
            if _is_empty(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _new_folder(show: Callable[[str], None]) -> Path:
    top = platformdirs.user_state_path("verl-doctor") / "smoke"
    begin = f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{platform.node()}-"
    try:
        own_folders.made(top)
        _make_room(top)
        return Path(tempfile.mkdtemp(prefix=begin, dir=top))
    except OSError as error:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX + begin))
        show(f"{os_error_text(error)}: logs of failures go to {folder}")
        return folder


def _make_room(top: Path) -> None:
    """Remove empty folders, and the oldest ones.

    A running climb keeps its folder, whatever machine it runs on.

    Some shared file systems keep locks local to each machine (Lustre's localflock, NFS's local_lock), so
    folders of other machines are removed only when they are old as well.
    """
    ended = []
    for folder in abandoned(top, ""):
        if f"-{platform.node()}-" not in folder.name and time.time() - folder.stat().st_mtime < _LONG_AGO:
            continue
        if _is_empty(folder):
            shutil.rmtree(folder, ignore_errors=True)
        else:
            ended.append(folder)
    for folder in sorted(ended)[: max(0, len(ended) - _KEPT + 1)]:
        shutil.rmtree(folder, ignore_errors=True)


def _is_empty(folder: Path) -> bool:
    """Return whether no log was kept in it."""
    return all(os.path.isdir(path) or path.name == LOCK for path in folder.rglob("*"))


def keep(stage: Stage, outcome: Outcome, *, always: bool) -> str:
    """Keep the logs of a rung that failed, or `always`; else remove them.

    Return the path of the relevant log, "" if none is kept.
    """
    if outcome.status == "failed":
        _keep_those_of_ray(stage.folder, stage.logs)
    elif not always:
        shutil.rmtree(stage.logs, ignore_errors=True)
        return ""
    log = outcome.log
    if log is not None and log.is_relative_to(stage.folder):  # one of Ray's, removed with the folder
        log = stage.logs / "ray" / log.name
    if log is not None:
        return str(log)
    return str(stage.logs) if os.path.isdir(stage.logs) else ""


def _keep_those_of_ray(private: Path, logs: Path) -> None:
    """Copy the logs of Ray's processes from a private folder before it is removed."""
    paths = [path for path in private.glob("**/ray/session_2*/logs/*") if os.path.isfile(path)]
    for path in sorted(paths)[:_MOST]:
        with contextlib.suppress(OSError):
            (logs / "ray").mkdir(parents=True, exist_ok=True)
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _LARGEST))
                (logs / "ray" / path.name).write_bytes(file.read())
