"""Repaired files: whether their repairs are still in them, and what brings those back that are not."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.guard_agreement import AgreedFile, Bases

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


def found(agreed: AgreedFile, bases: Bases) -> Found:
    """Look at one file."""
    path = bases.path(agreed.place)
    try:
        content = os.fsencode(path.readlink()) if agreed.link else path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Found(agreed, path, "gone")
    except OSError as error:
        return Found(agreed, path, "unreadable", error.strerror or type(error).__name__)
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
    from verl_doctor.toolkit.guard_patches import missing  # noqa: PLC0415 - reads the file as Python

    return lines.issuperset(agreed.loose) and not missing(agreed.patches, path)


def line_digest(line: str) -> str:
    """What tells a line again without showing it."""
    return hashlib.sha256(line.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16]
