"""Runs a script in an interpreter, and reads the one JSON document that it returns, whatever else is printed."""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from verl_doctor.toolkit.facts import Unknown, UnknownKind
from verl_doctor.toolkit.machine import Answer, Machine

_LONGEST = 300  # characters of an error message
_KINDS: Mapping[int, UnknownKind] = {
    errno.EAGAIN: "no more processes",
    errno.ENOMEM: "no more processes",
    errno.EMFILE: "no more processes",
    errno.ENFILE: "no more processes",
    errno.EROFS: "no temporary folder",  # of Machine.run
}


def ending(answer: Answer, timeout: float) -> str:
    """Describe how a child ended that reported less than it should."""
    if answer.code is None:
        return f"it did not end within {timeout:.0f} s"
    if answer.flooded:
        return answer.last_line
    if answer.code < 0:
        return f"the process was ended by signal {-answer.code}"
    if answer.stderr.strip():
        return answer.last_line[:_LONGEST]
    return (
        f"the process ended with status {answer.code} before it had answered"  # its output may be incomplete
    )


def ask_child(
    machine: Machine,
    python: str,
    script: ModuleType,
    *arguments: str,
    timeout: float,
    variables: Mapping[str, str] | None = None,
) -> tuple[Answer, Any] | Unknown:
    """Run the text of a `child_*` module with a token and these arguments, and with these `variables` in its environment.

    The document follows the token, which no other code can print. None means that there was none, and how the process ended
    is the reason.
    """
    text = Path(str(script.__file__)).read_text("utf-8")
    env = {"PYTHONDONTWRITEBYTECODE": "1", **variables} if variables else None
    return ask_text(machine, (python,), text, *arguments, timeout=timeout, env=env)


def ask_text(
    machine: Machine,
    python: Sequence[str],
    text: str,
    *arguments: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
) -> tuple[Answer, Any] | Unknown:
    """Do the same with a script text, for interpreters too old for a module of ours. `python` may include options."""
    token = f"verl-doctor {secrets.token_hex(8)} "
    try:
        answer = machine.run([*python, "-c", text, token, *arguments], timeout=timeout, env=env)
    except OSError as error:
        reason = f"{python[0]} cannot be started: {error.strerror}"
        return Unknown(reason, kind=_KINDS.get(error.errno or 0, ""))
    _, found, rest = answer.stdout.rpartition(token)
    try:
        return answer, json.loads(rest.partition("\n")[0]) if found else None
    except (ValueError, RecursionError):
        return answer, None
