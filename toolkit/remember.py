"""Answers that are dear to compute, remembered between runs in the doctor's own cache folder.

An answer is valid for exactly the files that it was computed from, and for this version of the doctor's own code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import platformdirs

from verl_doctor.toolkit import cache
from verl_doctor.toolkit.facts import F, Unknown

_KEPT = 64  # answers of one kind, the youngest
_LARGEST = 16_000_000  # bytes


def remembered(
    fact: type[F], about: object, places: Iterable[Path], compute: Callable[[], F | Unknown]
) -> F | Unknown:
    """Return the answer for these files and the Python sources below these folders, computing it when they are not the same as then.

    `about` is whatever else the answer depends on; its `repr` counts. An `Unknown` is not remembered.
    """
    key = key_of(about, places)
    if (known := recall(fact, key)) is not None:
        return known
    answer = compute()
    if isinstance(answer, fact):
        keep(answer, key)
    return answer


def key_of(about: object, places: Iterable[Path]) -> str:
    """Everything that an answer depends on, the doctor's own code included, as a digest."""
    return hashlib.sha256(
        f"{fingerprint(places)}{_own_code()} {about!r}".encode("utf-8", "surrogateescape")
    ).hexdigest()


@functools.cache
def _own_code() -> str:
    """It is the same for as long as this process lives, for it has been loaded."""
    return fingerprint([Path(__file__).parent])


def recall(fact: type[F], key: str) -> F | None:
    """The answer that was kept under this key."""
    answer = cache.read(_file(fact, key), _LARGEST)
    with contextlib.suppress(Exception):  # whatever is wrong with it, it can be computed
        return _restored(fact, answer) if answer is not None else None
    return None


def keep(answer: object, key: str, most: int = _KEPT) -> None:
    """Keep an answer, and of its kind the `most` youngest."""
    file = _file(type(answer), key)
    cache.write(file, asdict(cast("Any", answer)))
    cache.keep_youngest(file.parent, most)


def _file(fact: type, key: str) -> Path:
    return platformdirs.user_cache_path("verl-doctor") / fact.__name__ / f"{key}.json"


def fingerprint(places: Iterable[Path]) -> str:
    """A digest of the name, size, inode and times of these files and of every Python source below these folders.

    Of compiled files the names alone count. A tree's RECORD says what was installed, and not what was edited since; asking
    each of 5,000 files takes 30 ms.
    """
    digest = hashlib.sha256()
    for place in places:
        lines = _seen_below(str(place)) if place.is_dir() else [_line(str(place), place.stat)]
        digest.update("".join(sorted(lines)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _seen_below(top: str) -> list[str]:
    """One line for each file. A folder that is a link counts, unless it leads back to one above it."""
    lines: list[str] = []
    waiting: list[tuple[str, frozenset[str]]] = [(top, frozenset())]
    while waiting:
        folder, above = waiting.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            lines.append(f"{folder}\0{error.errno}\n")
            continue
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                if name != "__pycache__":
                    waiting.append((entry.path, above))
            elif entry.is_symlink() and entry.is_dir():
                real = os.path.realpath(entry.path)
                if real not in above and not f"{os.path.realpath(folder)}/".startswith(f"{real}/"):
                    waiting.append((entry.path, above | {real}))
            elif name.endswith(".py"):
                lines.append(_line(entry.path, entry.stat))
            elif name.endswith(".so"):
                lines.append(f"{entry.path}\n")
    return lines


def _line(path: str, stat: Callable[[], os.stat_result]) -> str:
    """What a file has been seen to be."""
    try:
        info = stat()
    except OSError as error:
        return f"{path}\0{error.errno}\n"
    # The last one tells a change of rights too: what could be read may be hidden now.
    return f"{path}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ino}\0{info.st_ctime_ns}\n"


def _restored(fact: type[F], value: Any) -> F:
    import dacite  # noqa: PLC0415 - only when there is something to restore

    return dacite.from_dict(fact, value, dacite.Config(cast=[tuple]))
