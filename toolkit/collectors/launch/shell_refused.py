"""Bash's error for a script that it cannot parse: `bash -n` reads the script without running it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_doctor.toolkit.collectors.launch.launch import ScriptError
from verl_doctor.toolkit.machine import Machine

_MESSAGE = re.compile(r": line (\d+): (.+)")
_LONGEST = 100_000  # characters: Linux allows 128 KiB in one argument
_EXTENDED = re.compile(r"^[^#]*\bshopt\b.*\bextglob\b", re.MULTILINE)
_OTHER_SHELL = re.compile(r"#!.*\b(?!bash\b|sh\b|dash\b)(?:\w*sh|python\S*)\s*$")


def refused(path: str, text: str, machine: Machine) -> ScriptError | None:
    """Check a script with bash.

    None if it parses, if it is for another shell, or if bash does not run here.
    """
    if _OTHER_SHELL.match(text.partition("\n")[0]):
        return None
    syntax_error = _syntax_error((*_options(text), path), machine)
    return ScriptError(path, *syntax_error) if syntax_error else None


def refused_text(text: str, machine: Machine) -> tuple[int, str] | None:
    """Like `refused`, for a script that is not in a file: the line at which bash stops, and its message."""
    if _OTHER_SHELL.match(text.partition("\n")[0]) or len(text) > _LONGEST:
        return None
    return _syntax_error((*_options(text), "-c", text), machine)


def _options(text: str) -> tuple[str, ...]:
    """Return the options with which bash reads a script as it does once the script has set them."""
    return ("-O", "extglob") if _EXTENDED.search(text) else ()


def _syntax_error(script: Sequence[str], machine: Machine) -> tuple[int, str] | None:
    try:
        output = machine.run(("bash", "-n", *script), timeout=5, env={"LC_ALL": "C", "BASH_ENV": ""})
    except OSError:
        return None
    match = _MESSAGE.search(output.stderr)
    return (int(match[1]), match[2]) if output.code and match else None
