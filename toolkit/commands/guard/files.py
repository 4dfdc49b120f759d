"""Repaired files: whether their repairs are still in place, and how to restore those that are not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.changes.safe_write import read
from verl_doctor.toolkit.commands.guard.agreement import AgreedFile, Bases
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.system.path_timeout import PATH_TIMEOUT, all_in_time

_LARGEST = 64 * 1024 * 1024  # bytes; repaired files are source code and configuration
State = Literal["kept", "edited", "lost", "gone", "changed", "unreadable"]


@dataclass(frozen=True)
class Found:
    """The present state of a repaired file.

    "edited": all marked lines are in place, and it differs elsewhere. "lost": some of them are missing.
    "changed": it has no marked lines and differs. "gone": the file does not exist.
    """

    agreed: AgreedFile
    path: Path
    state: State
    reason: str = ""


def all_found(agreed: Iterable[AgreedFile], bases: Bases) -> list[Found]:
    """Examine each file.

    A file that does not respond in time is unreadable. Raises UsageError if its patches are damaged.
    """
    files = [(agreed_file, bases.path(agreed_file.place)) for agreed_file in agreed]
    contents = all_in_time([partial(_content, agreed_file, path) for agreed_file, path in files])
    return [
        _found(agreed_file, path, content)
        for (agreed_file, path), content in zip(files, contents, strict=True)
    ]


def found(agreed: AgreedFile, bases: Bases) -> Found:
    """Examine one file, as `all_found` does."""
    return all_found([agreed], bases)[0]


def _content(agreed: AgreedFile, path: Path) -> bytes | Found:
    """Return the content of a file, or the target of a link; pipes are not read.

    An installer may have linked the file.
    """
    try:
        content = (
            os.fsencode(path.readlink()) if agreed.link else read(Path(os.path.realpath(path)), _LARGEST)
        )
    except (FileNotFoundError, NotADirectoryError):
        content = None
    except OSError as error:
        return Found(agreed, path, "unreadable", error.strerror or type(error).__name__)
    except Refused as error:
        return Found(agreed, path, "unreadable", str(error))
    return Found(agreed, path, "gone") if content is None else content


def _found(agreed: AgreedFile, path: Path, content: bytes | Found | None) -> Found:
    if content is None:
        return Found(agreed, path, "unreadable", f"no answer within {PATH_TIMEOUT} s")
    if isinstance(content, Found):
        return content
    if hashlib.sha256(content).hexdigest() == agreed.sha256:
        return Found(agreed, path, "kept")
    if not agreed.marked:
        return Found(agreed, path, "changed")
    lines = set(map(line_digest, content.decode("utf-8", "replace").splitlines()))
    if lines.issuperset(agreed.marked) or (agreed.patches and _stand(agreed, path, lines)):
        return Found(agreed, path, "edited")
    return Found(agreed, path, "lost")


def _stand(agreed: AgreedFile, path: Path, lines: set[str]) -> bool:
    """Return whether the file has the patches as `guard --apply` and `patches apply` write them."""
    from verl_doctor.toolkit.commands.guard.patches import missing  # noqa: PLC0415 - reads the file as Python

    return lines.issuperset(agreed.loose) and not missing(agreed.patches, path)


def line_digest(line: str) -> str:
    """Return a digest that identifies a line without showing it."""
    return hashlib.sha256(line.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16]
