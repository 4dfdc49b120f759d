"""A Python program that a launch script calls, where it starts, and how certainly it starts training."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.launch.wrappers.containers import CONTAINERS
from verl_doctor.toolkit.sources.shell.found import Argument
from verl_doctor.toolkit.sources.shell.hurdle import Hurdle
from verl_doctor.toolkit.sources.shell.state import EnvironmentChange

_TRAINER = re.compile(r"(?:^|[./])(?:main_\w+|\w*_?trainer|train\w*|run_\w+)(?:\.py)?$")
# A source that imports verl's trainer, or that imports verl and reads a configuration with Hydra.
STARTS_VERL = re.compile(
    (
        r"^[ \t]*(?:from|import)[ \t]+verl\.trainer\b|^[ \t]*(?:from|import)[ \t]+verl\b(?=[\s\S]*^"
        r"[ \t]*@hydra\.main\()"
    ),
    re.MULTILINE,
)
# Hydra's overrides, "a.b=c" with "+", "++" or "~" in front, and its own options.
_OVERRIDE = re.compile(r"(?:\+{0,2}|~)[A-Za-z_][\w/.@-]*=|~[A-Za-z_][\w./]*$")
_HYDRA_OPTION = re.compile(r"--config-(?:name|path|dir)(?:=|$)|-c[npd]$")
# Programs that start the job in a container or on another machine, with other files.
OTHER_FILES = CONTAINERS | {"ssh"}
_ELSEWHERE = OTHER_FILES | {"srun", "sbatch"}


@dataclass(frozen=True)
class Missing:
    """What does not exist where a program is called: the shell's message, and what bash stumbles over."""

    message: str
    hurdle: Hurdle = ""
    name: str = ""


@dataclass(frozen=True)
class Program:
    """A Python program that is called, and the variables given to it up to that point.

    `launcher` starts its processes, `names` are the programs called on the way to it by the last shell,
    `around` those called before, `folder` is where it starts, "" if unknown. `starts_verl`: its source
    imports verl's trainer, or verl and Hydra. `missing` is the error if it, its source or the folder of its
    output does not exist. `timeout` ends it after `ends_after` seconds.
    """

    module: str
    words: tuple[Argument, ...]
    path: str
    line: int
    changes: tuple[EnvironmentChange, ...]
    reaching: tuple[EnvironmentChange, ...]
    conditional: bool
    submitted: bool = False
    launcher: tuple[Argument, ...] = ()
    names: tuple[str, ...] = ()
    around: tuple[str, ...] = ()
    folder: str = ""
    starts_verl: bool = False
    missing: Missing | None = None
    in_container: bool = False
    limits: tuple[tuple[str, ...], ...] = ()
    written: tuple[tuple[str, str | None], ...] = ()
    ends_after: float | None = None

    @property
    def is_elsewhere(self) -> bool:
        """Whether it starts in a container or on another machine."""
        return are_elsewhere((*self.around, *self.names))

    @property
    def rank(self) -> int:
        """How certainly it starts training; 0: not at all."""
        overrides = sum(1 for word in self.words if _OVERRIDE.match(word.text or word.written))
        options = any(_HYDRA_OPTION.match(word.text or "") for word in self.words)
        from_verl = re.match(r"verl[./]", self.module) is not None or "/verl/" in self.module
        trains = _TRAINER.search(self.module) is not None
        if from_verl and trains:
            return 4
        if self.starts_verl or (trains and (overrides or options)):
            return 3
        if from_verl and overrides:
            return 2
        return 1 if overrides >= 2 or options else 0


def base_names(names: Iterable[str]) -> set[str]:
    """Return the last parts of the paths of programs."""
    return {name.rpartition("/")[2] for name in names}


def are_elsewhere(names: Iterable[str]) -> bool:
    """Return whether what these programs start runs in a container or on another machine."""
    return not _ELSEWHERE.isdisjoint(base_names(names))
