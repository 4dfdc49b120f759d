"""The files that a report is written to: one that is there and is none of ours is not replaced unasked."""

from __future__ import annotations

import os
from pathlib import Path

from verl_doctor.toolkit.target import UsageError

_PIECE = 4096  # bytes at either end, in one of which each form of a report says whose it is
_OURS = (b"verl-doctor report", b'content="verl-doctor"', b"Made by verl-doctor", b'"verl_doctor":')


def refuse_others(path: Path) -> None:
    """Raise UsageError when this is a file that somebody else wrote. Devices and pipes are written to."""
    if os.path.isfile(path) and not _is_ours(path):
        raise UsageError(
            f"{path} is there and is no report of verl-doctor: name another file, or add --force"
        )


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(_PIECE)
            file.seek(max(0, size - _PIECE))
            ends = head + file.read(_PIECE)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    return not size or any(mark in ends for mark in _OURS)
