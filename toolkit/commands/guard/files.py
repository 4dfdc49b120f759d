"""Repaired files: whether their repairs are still in them, and what brings those back that are not."""

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

_LARGEST = 64 * 1024 * 1024  # bytes; what is repaired is source code and configuration
State = Literal["kept", "edited", "lost", "gone", "changed", "unreadable"]


@dataclass(frozen=True)
class Found:
    """A repaired file as it is now.

    "edited": all marked lines stand in it, and it differs elsewhere. "lost": some of them are gone. "changed": it has no
    marked lines and differs. "gone": there is no such file.
    """

    agreed: AgreedFile
    path: Path
    state: State
    reason: str = ""


def all_found(agreed: Iterable[AgreedFile], bases: Bases) -> list[Found]:
    """Look at each file. One that does not answer in time is unreadable. Raises UsageError when the patches of one are damaged."""
    files = [(agreed_file, bases.path(agreed_file.place)) for agreed_file in agreed]
    contents = all_in_time([partial(_content, agreed_file, path) for agreed_file, path in files])
    return [
        _found(agreed_file, path, content)
        for (agreed_file, path), content in zip(files, contents, strict=True)
    ]


def found(agreed: AgreedFile, bases: Bases) -> Found:
    """Look at one file. As `all_found`."""
    return all_found([agreed], bases)[0]


def _content(agreed: AgreedFile, path: Path) -> bytes | Found:
    """What a file holds, or where a link leads; a pipe is not waited for. A file may be linked there by its installer."""
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
        return Found(agreed, path, "unreadable", f"it did not answer in {PATH_TIMEOUT} s")
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
    """Whether the patches are in the file in another form: `guard --apply` and `patches apply` write them as this doctor does."""
    from verl_doctor.toolkit.commands.guard.patches import missing  # noqa: PLC0415 - reads the file as Python

    return lines.issuperset(agreed.loose) and not missing(agreed.patches, path)


def line_digest(line: str) -> str:
    """What tells a line again without showing it."""
    return hashlib.sha256(line.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16]
