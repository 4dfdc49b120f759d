"""The `ray start` and `ray job submit` commands in the launch files.

With them come the values that they set in place of those that Ray detects.

They are found in the text, wherever they run, including after `srun` or `ssh`. `Launch.ray_starts` holds only
those that the script itself runs here, with their words as the shell passes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.collectors.launch.launch import Launch, load_text
from verl_doctor.toolkit.facts import Absent, collector
from verl_doctor.toolkit.system.secret import BLANKED, may_hold_secret, suggests_secret, without_user

# To the end of the command; `#` begins a comment only after a blank.
_COMMAND = r"(?<![\w/.#-])(?:\S*/)?ray\s+{}\b((?:(?!\s#)[^\n;&|])*)"
_START, _SUBMIT = (re.compile(_COMMAND.format(verb)) for verb in ("start", r"job\s+submit"))
_OPTION = re.compile(r"--([a-z][a-z-]+)(?:=|\s+(?!-))?(\"[^\"\n]*\"|'[^'\n]*'|[^\s\"')]*)")


@dataclass(frozen=True)
class RayStart:
    """One `ray start` or `ray job submit`.

    `options` holds source text by name: "num-cpus": "$SLURM_CPUS_PER_TASK".

    Possible secrets are `***`.
    """

    path: str
    line: int
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RayStarts:
    """Each `ray start` in the launch files, and each `ray job submit` with its own options, not the job's."""

    commands: tuple[RayStart, ...] = ()
    submits: tuple[RayStart, ...] = ()

    def gives(self, option: str) -> bool:
        """Return whether any of the commands has this option."""
        return any(option in command.options for command in self.commands)


@collector(kept=True)
def ray_starts(launch: Launch) -> RayStarts | Absent:
    """Find the commands in the text, including those passed to `srun` or `ssh`."""
    starts, submits = (
        tuple(found for path, _ in launch.files for found in _commands(path, command))
        for command in (_START, _SUBMIT)
    )
    return RayStarts(starts, submits)


def _commands(path: str, command: re.Pattern[str]) -> Iterator[RayStart]:
    text = load_text(path) or ""
    # Join continued lines without changing the length, so that offsets remain valid.
    for match in command.finditer(text.replace("\\\n", " \v")):
        start = text.rfind("\n", 0, match.start()) + 1
        if not text[start : match.start()].lstrip().startswith("#"):
            own = re.split(r"\s--\s", match[1])[0]
            options = {name: _shown(name, value.strip("\"'")) for name, value in _OPTION.findall(own)}
            yield RayStart(path, text.count("\n", 0, match.start()) + 1, options)


def _shown(option: str, value: str) -> str:
    """Return the value, `***` if it may be a secret."""
    plain = without_user(value)
    return (
        "***"
        if value and (suggests_secret(option) or may_hold_secret(plain.replace(BLANKED, "://")))
        else plain
    )
