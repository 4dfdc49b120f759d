"""Where the index of rules, fixes, collectors and signatures is stored, and when it is valid.

The same applies to parcels for nodes.

A wheel ships an index, valid while each file has the content it had then. In a checkout, and after an edit,
it is rebuilt and stored in the doctor's own cache, for files of exactly these sizes, times and inodes. Any
other change makes it invalid.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.system.own_files import DATA, TOOLKIT

SHIPPED = DATA / "index"
"""Where a wheel has the index: a file for each section."""

_PACKAGES = ("checks", "patches")
_SUFFIXES = (".py", ".toml")
_LARGEST = 16_000_000  # bytes
_KEPT = 24  # files: a few checkouts and Python versions, and parcels for nodes
_TICK = 0.05  # seconds; clocks of files and processes are never read more often than every 10 ms


def section(name: str, make: Callable[[], Any]) -> Any:
    """Return a section of the index, JSON derived from files alone; `make` builds it if none is stored."""
    content = known(name)
    if content is None:
        content = make()
        keep(name, lambda: content)
    return content


def known(name: str) -> Any:
    """Return the section that is stored or shipped for exactly these files, or None."""
    from verl_doctor.toolkit.system import cache  # noqa: PLC0415 - see keep

    kept = cache.read(_file(name), _LARGEST)
    content = kept["content"] if isinstance(kept, dict) and kept.get("state") == state() else None
    if content is None and (content := _shipped(name)) is not None:
        found = content
        keep(name, lambda: found)
    return content


def keep(name: str, content: Callable[[], Any]) -> None:
    """Store a section for the next run, once per process, unless a file changed since this process began."""
    from verl_doctor.toolkit.system import cache  # noqa: PLC0415 - a parcel for nodes stores nothing

    if name not in _kept_by_this_process and _is_settled():
        _kept_by_this_process.add(name)
        cache.write(_file(name), {"state": state(), "content": content()})
        cache.keep_youngest(_file(name).parent, _KEPT)


_kept_by_this_process: set[str] = set()


def _file(name: str) -> Path:
    """Return the file for this installation and Python; its content records the state of the files."""
    import platformdirs  # noqa: PLC0415 - as the cache does

    about = f"{TOOLKIT}\0{sys.version}\0{sys.flags.optimize}"
    number = zlib.crc32(about.encode("utf-8", "surrogateescape"))
    return platformdirs.user_cache_path("verl-doctor") / "index" / f"{number:08x}-{name}.json"


@functools.cache
def state() -> str:
    """Return the state of all files that the index is built from, as this process found them."""
    return _state_now()


def _state_now() -> str:
    """Return current sizes, times and inodes: a digest takes longer to import than to compute."""
    lines = [f"{TOOLKIT} {sys.version} {sys.flags.optimize}"]
    lines += [
        f"{path} {about.st_size} {about.st_mtime_ns} {about.st_ino} {about.st_ctime_ns}"
        for _, path, about in _files()
    ]
    return "\n".join(lines)


def _is_settled() -> bool:
    """Return whether this process imported the files as they are, and their times will show later edits."""
    try:
        began = _began() - _TICK
    except (OSError, ValueError, AttributeError):  # not Linux
        return False
    return _state_now() == state() and all(
        max(status.st_mtime, status.st_ctime) < began for _, _, status in _files()
    )


def _began() -> float:
    """Return when this process began, on the scale of file times."""
    ticks = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()[19]
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
    return time.time() - age


@functools.cache
def content_digest() -> str:
    """Return a digest of the files' content, wherever they lie."""
    import hashlib  # noqa: PLC0415 - only after an installation

    digest = hashlib.sha256()
    for name, path, _ in _files():
        content = Path(path).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _shipped(name: str) -> Any:
    """Return the wheel's section, if it was built from files with the same content."""
    try:
        shipped = json.loads((SHIPPED / f"{name}.json").read_bytes())
        return shipped["content"] if shipped["digest"] == content_digest() else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def shipped_document(content: Any) -> str:
    """Return a section in the form that a wheel ships."""
    return json.dumps({"digest": content_digest(), "content": content})


def _files() -> list[tuple[str, str, os.stat_result]]:
    """Return all sources and signatures: the name below the top, the path, and the recorded file status."""
    return sorted(
        (file for name, folder in _named_folders() for file in _below(name, folder)), key=lambda file: file[1]
    )


def folders() -> list[str]:
    """Return the folders of the doctor's own sources, which `state` covers."""
    return [folder for _, folder in _named_folders()]


def _named_folders() -> list[tuple[str, str]]:
    found = [("toolkit", str(TOOLKIT))]
    for package in _PACKAGES:
        places = importlib.import_module(f"verl_doctor.{package}").__path__
        found += [(package, place) for place in places]
    return found


def _below(name: str, folder: str) -> Iterator[tuple[str, str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIXES):
                yield f"{name}/{entry.name}", entry.path, entry.stat()
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from _below(f"{name}/{entry.name}", entry.path)
