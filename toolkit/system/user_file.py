"""Reads a file that the user named, up to a size limit, and without blocking."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from verl_doctor.toolkit.system.errors import reason_of
from verl_doctor.toolkit.target import UsageError


def read(path: Path, largest: int) -> bytes | None:
    """Return the content of a file, None if it is larger than `largest` bytes.

    Raises UsageError if it cannot be read, and for a named pipe or a device. A pipe from another command,
    such as `<(COMMAND)` in bash or `/dev/stdin`, is read, because it ends with that command.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _judge(path, descriptor)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(largest + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {reason_of(error)}") from None
    return content if len(content) <= largest else None


def _judge(path: Path, descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) and not os.path.exists(os.path.realpath(path)):
        os.set_blocking(descriptor, True)
    elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # reading a folder fails with a clear error
        raise UsageError(f"{path} is a pipe or a device; name a file")
