"""The `ray start` commands in the launch files, and what they tell Ray instead of letting it count.

They are found in the text, wherever they run: behind `srun` or `ssh` too. `Launch.ray_starts` are only those that the script itself
runs here, as the shell hands over their words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.fact_launch import Launch, load_text
from verl_doctor.toolkit.facts import Absent, collector

# To the end of the command; a `#` begins a comment only behind a blank.
_COMMAND = re.compile(r"(?<![\w/.#-])(?:\S*/)?ray\s+start\b((?:(?!\s#)[^\n;&|])*)")
_OPTION = re.compile(r"--([a-z][a-z-]+)(?:=|\s+(?!-))?(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"')]*)")


@dataclass(frozen=True)
class RayStart:
    """One `ray start`. `options` are as they are written, by name: "num-cpus": "$SLURM_CPUS_PER_TASK"."""

    path: str
    line: int
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RayStarts:
    """Every `ray start` in the launch files."""

    commands: tuple[RayStart, ...] = ()

    def gives(self, option: str) -> bool:
        """Whether one of them has this option."""
        return any(option in command.options for command in self.commands)


@collector()
def ray_starts(launch: Launch) -> RayStarts | Absent:
    """Look for the commands in the text: also in one that is handed to `srun` or `ssh`."""
    return RayStarts(tuple(start for path, _ in launch.files for start in _starts(path)))


def _starts(path: str) -> Iterator[RayStart]:
    text = load_text(path) or ""
    # A continued line becomes one of the same length, so that places still count.
    for match in _COMMAND.finditer(text.replace("\\\n", " \v")):
        start = text.rfind("\n", 0, match.start()) + 1
        if not text[start : match.start()].lstrip().startswith("#"):
            options = {name: value.strip("\"'") for name, value in _OPTION.findall(match[1])}
            yield RayStart(path, text.count("\n", 0, match.start()) + 1, options)
