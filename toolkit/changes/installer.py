"""Runs pip or uv as a child, and finds the line of its output that names the cause of a failure."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections import deque
from collections.abc import Sequence

from verl_doctor.toolkit.system.errors import Refused, os_error_text
from verl_doctor.toolkit.system.secret import without_user
from verl_doctor.toolkit.text import harmless

# Variables that make the installer write outside the environment for which it is started.
_ELSEWHERE = (
    "PIP_TARGET",
    "PIP_PREFIX",
    "PIP_ROOT",
    "PIP_USER",
    "PIP_DRY_RUN",
    "PIP_REPORT",
    "UV_SYSTEM_PYTHON",
    "UV_TARGET",
    "UV_PREFIX",
    "PYTHONPATH",
    "PYTHONHOME",
)
_CAUSE = re.compile(r"^\s*(?:error|caused by|cause)\b:?\s*(.+)", re.IGNORECASE)
_FULL = re.compile(r"no space left on device|disk quota exceeded|file too large", re.IGNORECASE)
_NOT_PRINTED = "Requirement already satisfied"  # printed for each line of a lock
_KEPT = 200  # lines
_LONGEST = 300  # characters


def run(argv: Sequence[str], held: int) -> None:
    """Run an installer with its output on standard error.

    It holds the lock `held` as long as it runs, even if this process is killed.

    Raises Refused, with the cause, if it cannot be started or fails.
    """
    environ = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    environ |= {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_NO_INPUT": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    last: deque[str] = deque(maxlen=_KEPT)
    try:
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environ,
            pass_fds=(held,),
        ) as process:
            for line in process.stdout or ():
                text = without_user(line.decode("utf-8", "replace").rstrip())
                last.append(text)
                if sys.stderr is not None and not text.startswith(_NOT_PRINTED):
                    print(harmless(text), file=sys.stderr, flush=True)
    except (OSError, ValueError) as error:
        cause = os_error_text(error) if isinstance(error, OSError) else str(error)
        raise Refused(f"`{shlex.join(argv)}` could not be started: {cause}") from None
    if process.returncode:
        raise Refused(f"the installer failed: {_cause(last) or f'exit code {process.returncode}'}")


def _cause(lines: Sequence[str]) -> str:
    """Return the line that reports a full disk, otherwise the first line marked as an error."""
    full = next((line.strip() for line in lines if _FULL.search(line)), "")
    named = next((found[1] for line in lines if (found := _CAUSE.match(line))), "")
    text = full or named or next((line.strip() for line in reversed(lines) if line.strip()), "")
    return text[:_LONGEST]
