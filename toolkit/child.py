"""Handing a script to an interpreter, and hearing the one JSON document that it answers with, whatever else is printed."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from types import ModuleType
from typing import Any

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Answer, Machine


def ask_child(
    machine: Machine, python: str, script: ModuleType, *arguments: str, timeout: float
) -> tuple[Answer, Any] | Unknown:
    """Run the text of a `child_*` module with a token and these arguments.

    The document stands behind the token, which nobody else can print. None in its place: there was none, and how the
    process ended says why.
    """
    token = f"verl-doctor {secrets.token_hex(8)} "
    text = Path(str(script.__file__)).read_text("utf-8")
    try:
        answer = machine.run([python, "-c", text, token, *arguments], timeout=timeout)
    except OSError as error:
        return Unknown(f"{python} cannot be started: {error.strerror}")
    _, found, rest = answer.stdout.rpartition(token)
    try:
        return answer, json.loads(rest.partition("\n")[0]) if found else None
    except ValueError:
        return answer, None
