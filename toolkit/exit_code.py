"""The exit codes that the commands share."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command ended. `EPILOG` of `options.exit_codes` explains them in the help."""

    OK = 0
    FAILED = 1
    WRONG_USAGE = 2
    COULD_NOT_CHECK = 3
