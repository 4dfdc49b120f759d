"""Runs a script in an interpreter, and reads the JSON document that it prints, regardless of other output."""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from verl_doctor.toolkit.facts import Unknown, UnknownKind
from verl_doctor.toolkit.machine import Machine, Output

_LONGEST = 300  # characters of an error message
_KINDS: Mapping[int, UnknownKind] = {
    errno.EAGAIN: "no more processes",
    errno.ENOMEM: "no more processes",
    errno.EMFILE: "no more processes",
    errno.ENFILE: "no more processes",
    errno.EROFS: "no temporary folder",  # of Machine.run
}


def ending(output: Output, timeout: float) -> str:
    """Describe how a child ended without reporting everything."""
    if output.code is None:
        return f"it did not end within {timeout:.0f} s"
    if output.flooded:
        return output.last_line
    if output.code < 0:
        return f"the process was ended by signal {-output.code}"
    if output.stderr.strip():
        return output.last_line[:_LONGEST]
    return f"the process ended with status {output.code} without a result"  # its output may be incomplete


def run_probe(
    machine: Machine,
    python: str,
    script: ModuleType,
    *arguments: str,
    timeout: float,
    variables: Mapping[str, str] | None = None,
) -> tuple[Output, Any] | Unknown:
    """Run the source text of a probe module with a token and these arguments.

    The environment includes these `variables`.

    The document follows the token, which no other code can guess. Without a document, the result is None, and
    the reason is how the process ended.
    """
    text = Path(str(script.__file__)).read_text("utf-8")
    env = {"PYTHONDONTWRITEBYTECODE": "1", **variables} if variables else None
    return run_probe_text(machine, (python,), text, *arguments, timeout=timeout, env=env)


def run_probe_text(
    machine: Machine,
    python: Sequence[str],
    text: str,
    *arguments: str,
    timeout: float,
    env: Mapping[str, str] | None = None,
) -> tuple[Output, Any] | Unknown:
    """Do the same with the text of a script, for interpreters too old for our modules.

    `python` may include options.
    """
    token = f"verl-doctor {secrets.token_hex(8)} "
    try:
        output = machine.run([*python, "-c", text, token, *arguments], timeout=timeout, env=env)
    except OSError as error:
        reason = f"{python[0]} cannot be started: {error.strerror}"
        return Unknown(reason, kind=_KINDS.get(error.errno or 0, ""))
    _, found, rest = output.stdout.rpartition(token)
    try:
        return output, json.loads(rest.partition("\n")[0]) if found else None
    except (ValueError, RecursionError):
        return output, None
