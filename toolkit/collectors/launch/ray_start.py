"""The `ray start` and `ray job submit` commands in the launch files, and what they tell Ray instead of letting it find out.

They are found in the text, wherever they run: behind `srun` or `ssh` too. `Launch.ray_starts` are only those that the script itself
runs here, as the shell hands over their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.collectors.launch.launch import Launch, load_text
from verl_doctor.toolkit.facts import Absent, collector
from verl_doctor.toolkit.system.secret import BLANKED, may_hold_secret, smells_of_secret, without_user

# To the end of the command; a `#` begins a comment only behind a blank.
_COMMAND = r"(?<![\w/.#-])(?:\S*/)?ray\s+{}\b((?:(?!\s#)[^\n;&|])*)"
_START, _SUBMIT = (re.compile(_COMMAND.format(verb)) for verb in ("start", r"job\s+submit"))
_OPTION = re.compile(r"--([a-z][a-z-]+)(?:=|\s+(?!-))?(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"')]*)")


@dataclass(frozen=True)
class RayStart:
    """One `ray start`, or `ray job submit`. `options` are as they are written, by name: "num-cpus": "$SLURM_CPUS_PER_TASK".

    What may be a secret is `***`.
    """

    path: str
    line: int
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RayStarts:
    """Every `ray start` in the launch files, and every `ray job submit` with its own options, not those of the job."""

    commands: tuple[RayStart, ...] = ()
    submits: tuple[RayStart, ...] = ()

    def gives(self, option: str) -> bool:
        """Whether one of them has this option."""
        return any(option in command.options for command in self.commands)


@collector(kept=True)
def ray_starts(launch: Launch) -> RayStarts | Absent:
    """Look for the commands in the text: also in one that is handed to `srun` or `ssh`."""
    starts, submits = (
        tuple(found for path, _ in launch.files for found in _commands(path, command))
        for command in (_START, _SUBMIT)
    )
    return RayStarts(starts, submits)


def _commands(path: str, command: re.Pattern[str]) -> Iterator[RayStart]:
    text = load_text(path) or ""
    # A continued line becomes one of the same length, so that places still count.
    for match in command.finditer(text.replace("\\\n", " \v")):
        start = text.rfind("\n", 0, match.start()) + 1
        if not text[start : match.start()].lstrip().startswith("#"):
            own = re.split(r"\s--\s", match[1])[0]
            options = {name: _shown(name, value.strip("\"'")) for name, value in _OPTION.findall(own)}
            yield RayStart(path, text.count("\n", 0, match.start()) + 1, options)


def _shown(option: str, value: str) -> str:
    """A value, unless it may be a secret."""
    plain = without_user(value)
    return (
        "***"
        if value and (smells_of_secret(option) or may_hold_secret(plain.replace(BLANKED, "://")))
        else plain
    )
