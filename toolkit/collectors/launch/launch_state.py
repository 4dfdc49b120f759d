"""The machine for which launch files are read, and what has been found in them so far."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from verl_doctor.toolkit.collectors.launch.job_program import Program
from verl_doctor.toolkit.collectors.launch.launch import WorkingDir
from verl_doctor.toolkit.collectors.launch.passed_variables import state_of
from verl_doctor.toolkit.sources.shell.found import Argument, Call, Stop
from verl_doctor.toolkit.sources.shell.state import EnvironmentChange, ShellState
from verl_doctor.toolkit.sources.shell.walk import Walk

DEEPEST: Final = 8
"""Shells that are followed, one inside the other."""


@dataclass
class LaunchState:
    """The machine, the programs and changes found, and where the reader is.

    `load` returns the text of a file, or None if it cannot be read. `is_there` reports whether a path exists;
    it is None if the scripts run on another machine. `is_empty` reports whether an unset variable counts as
    empty, `is_of_windows` whether the lines of a file end as in Windows. `bin` is the folder of the job's
    interpreter. `is_here`: the job runs on this machine, so that a program which is not here is missing.
    `timeout` ends the shell that is being followed after `seconds`.
    """

    load: Callable[[str], str | None]
    environ: Mapping[str, str]
    cwd: str
    changes: list[EnvironmentChange] = field(default_factory=list)
    from_raylet: list[EnvironmentChange] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    lost: list[Argument] = field(default_factory=list)
    ray_starts: list[tuple[Argument, ...]] = field(default_factory=list)
    stops_ray: bool = False
    installs: bool = False
    limits: list[tuple[str, ...]] = field(default_factory=list)
    working_dirs: list[WorkingDir] = field(default_factory=list)
    is_there: Callable[[str], bool] | None = None
    is_empty: Callable[[str], bool] = lambda _: False
    is_of_windows: Callable[[str], bool] = lambda _: False
    stops: list[Stop] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    calling: list[str] = field(default_factory=list)
    around: tuple[str, ...] = ()
    sessions: dict[str, tuple[Walk, str]] = field(default_factory=dict)
    written: dict[str, str | None] = field(default_factory=dict)
    bin: str = ""
    is_here: bool = False
    seconds: float | None = None

    def of_shell(self, call: Call) -> ShellState:
        """Return the state in which a shell starts."""
        return state_of(call, self.environ, call.folder or self.cwd, self.around)

    @property
    def training(self) -> Program | None:
        """Return the program that most certainly starts training; of equals the first."""
        ranked = [program for program in self.programs if program.rank]
        return max(ranked, key=lambda program: program.rank, default=None)


def path_in(folder: str, name: str) -> str:
    """Return the path of a file that a program in this folder names."""
    return os.path.normpath(Path(folder, name))
