"""What sbatch submits, and the variables that Slurm passes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from verl_doctor.toolkit.collectors.launch.wrappers.programs import ASSIGNED, ShellProgram
from verl_doctor.toolkit.sources.shell.found import Argument, Lines


def export_option(words: Sequence[Argument]) -> str | None:
    """Return the value of Slurm's `--export`; None without one."""
    for place, word in enumerate(words):
        if (word.text or "").startswith("--export="):
            return (word.text or "").partition("=")[2]
        if word.text == "--export" and place + 1 < len(words):
            return words[place + 1].text or ""
    return None


def exported_assignments(words: Sequence[Argument]) -> list[Argument]:
    """Return the assignments in Slurm's `--export=ALL,A=1`."""
    parts = (export_option(words) or "").split(",")
    return [replace(words[0], text=part) for part in parts if ASSIGNED.match(part)]


def batch(argv: Sequence[Argument], rest: list[Argument], stdin: Lines | None) -> ShellProgram | None:
    """Parse what `sbatch` submits: the text after `--wrap`, a script, or its input."""
    for place, word in enumerate(argv):
        text = word.text or ""
        if text.startswith("--wrap=") or (text == "--wrap" and place + 1 < len(argv)):
            wrapped = text.partition("=")[2] if "=" in text else argv[place + 1].text
            return ShellProgram(wrapped, None, ())
    if rest:
        return ShellProgram(None, rest[0].text, tuple(rest[1:]))
    return ShellProgram(stdin.text, None, (), stdin) if stdin else None
