"""Strips the wrappers of a command line one by one, down to the innermost program."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from verl_doctor.toolkit.collectors.launch.wrappers.containers import AROUND, OWN_VARIABLES, in_image, inside
from verl_doctor.toolkit.collectors.launch.wrappers.env_words import behind_env
from verl_doctor.toolkit.collectors.launch.wrappers.from_input import with_input
from verl_doctor.toolkit.collectors.launch.wrappers.own_options import (
    WITH_VALUE,
    behind_options,
    seconds_of_timeout,
)
from verl_doctor.toolkit.collectors.launch.wrappers.programs import (
    ASSIGNED,
    PYTHON,
    SHELLS,
    PythonProgram,
    ShellProgram,
    name_of,
)
from verl_doctor.toolkit.collectors.launch.wrappers.python_words import (
    behind_python,
    launched_by,
    runs_python,
    safe_path,
    spawned_by_text,
    started_by_text,
)
from verl_doctor.toolkit.collectors.launch.wrappers.ray_job import behind_submit
from verl_doctor.toolkit.collectors.launch.wrappers.shell_words import WITH_TEXT, behind_shell, with_text
from verl_doctor.toolkit.collectors.launch.wrappers.slurm import batch, export_option, exported_assignments
from verl_doctor.toolkit.collectors.launch.wrappers.terminals import in_terminal
from verl_doctor.toolkit.sources.shell.found import Argument, Lines

Inherits = Literal["all", "none", "unknown"]


# What starts a program that may run on when they end: clients of servers, and other sessions.
_OUTLIVED = OWN_VARIABLES | {"ray", "sbatch", "screen", "setsid", "systemd-run", "tmux"}


@dataclass(frozen=True)
class Unwrapped:
    """The innermost program, and what the wrappers around it add to its environment.

    `assigned` are `name=value` words of `env`, `dropped` the names that `env -u` removes, `runtime_env` the
    `ray job submit` options for it, `working_dir` its `--working-dir`, `starts_ray` the words after `ray
    start`; `stops_ray`: the program is `ray stop`. `names` are all programs on the way, the last included, as
    they are called. `folder` is the one that `env -C` enters. `inherits` is what the program gets of the
    variables around it: none after `env -i`, and after `sudo` only those that are `passed` are known. `rest`
    are the words of a program that is neither Python nor a shell. `ends_after` is the number of seconds after
    which `timeout` ends it. `outlives`: a server or another session starts it, so that it may run on when
    what requested it has ended.
    """

    program: PythonProgram | ShellProgram | None
    assigned: tuple[Argument, ...] = ()
    dropped: tuple[Argument, ...] = ()
    runtime_env: tuple[Argument, ...] = ()
    runtime_env_json: tuple[Argument, ...] = ()
    working_dir: tuple[Argument, ...] = ()
    submits: bool = False
    starts_ray: tuple[Argument, ...] = ()
    stops_ray: bool = False
    names: tuple[str, ...] = ()
    folder: Argument | None = None
    inherits: Inherits = "all"
    passed: tuple[str, ...] = ()
    rest: tuple[Argument, ...] = ()
    ends_after: float | None = None
    outlives: bool = False


def unwrap(argv: Sequence[Argument], stdin: Lines | None = None) -> Unwrapped:
    """Strip the wrappers.

    The program is None if it is neither Python nor a shell. `stdin` is what it reads.
    """
    assigned: list[Argument] = []
    dropped: list[Argument] = []
    files: list[Argument] = []
    texts: list[Argument] = []
    folders: list[Argument] = []
    submits = False
    starts_ray: tuple[Argument, ...] = ()
    stops_ray = False
    rest = list(argv)
    program: PythonProgram | ShellProgram | None = None
    names: list[str] = []
    entered: list[Argument] = []
    inherits: Inherits = "all"
    passed: list[str] = []
    limits: list[float | None] = []
    outlives = False
    while rest:
        name = name_of(rest[0])
        names.append(rest[0].text or "")
        found, more = _inherited(name, rest)
        if found != "all":
            inherits, assigned, passed = found, [], list(more)
        if name in _OUTLIVED:
            outlives = True
            limits.clear()
        if rest[0].text is None and runs_python(rest[1:]):
            program, rest = behind_python(rest[1:])
            break
        if name == "env":
            rest = behind_env(rest[1:], assigned, dropped, entered)
        elif name == "ray":
            words = [word.text for word in rest]
            if words[1:2] == ["start"]:
                starts_ray = tuple(rest[2:])
            stops_ray = words[1:2] == ["stop"]
            if words[1:3] != ["job", "submit"]:
                break
            submits = True
            rest = behind_submit(
                rest[3:],
                {"--runtime-env": files, "--runtime-env-json": texts, "--working-dir": folders},
            )
        elif PYTHON.fullmatch(name):
            started = started_by_text(rest[1:], stdin)
            if started is None and (inner := spawned_by_text(rest[1:], stdin)):
                rest = inner
                continue
            safe = safe_path(rest)
            program, rest = (started, rest) if started else behind_python(rest[1:])
            if program is None:
                continue
            if not program.launcher:  # its processes do not inherit the option
                assigned += safe
            break
        elif name in SHELLS:
            program = behind_shell(rest[1:], stdin)
            break
        elif name in WITH_TEXT:
            program, rest = with_text(rest, name, stdin)
            if program is not None:
                break
        elif name in ("tmux", "screen"):
            program, rest = in_terminal(rest, name)
            if program is not None:
                break
        elif name in ("xargs", "parallel"):
            rest = with_input(rest, name, stdin)
        elif name in ("torchrun", "accelerate", "deepspeed"):
            program = launched_by(rest)
            break
        elif name in WITH_VALUE:
            around, rest = rest, behind_options(rest, name)
            if name == "timeout":
                limits.append(seconds_of_timeout(around, rest))
            if name == "uv" and rest and rest[0].text in ("-m", "--module"):
                program, rest = behind_python([replace(rest[0], text="-m"), *rest[1:]])
                break
            if name in ("srun", "sbatch"):
                assigned += exported_assignments(argv)
            if name == "sbatch":
                program = batch(argv, rest, stdin)
                break
            while name in ("sudo", "doas") and rest and ASSIGNED.match(rest[0].text or ""):
                assigned.append(rest.pop(0))
        elif name in AROUND:
            inner = inside(rest)
            if name in OWN_VARIABLES:
                assigned += in_image(rest[: len(rest) - len(inner)])
            rest = inner
        elif name.endswith(".sh"):
            program = ShellProgram(None, rest[0].text, tuple(rest[1:]))
            break
        elif name.endswith(".py"):
            program = PythonProgram(rest[0].text or "", tuple(rest[1:]))
            break
        else:
            break
    return Unwrapped(
        program,
        assigned=tuple(assigned),
        dropped=tuple(dropped),
        runtime_env=tuple(files),
        runtime_env_json=tuple(texts),
        working_dir=tuple(folders),
        submits=submits,
        starts_ray=starts_ray,
        stops_ray=stops_ray,
        names=tuple(names),
        folder=entered[-1] if entered else None,
        inherits=inherits,
        passed=tuple(passed),
        rest=tuple(rest) if program is None else (),
        ends_after=min(filter(None, limits), default=None),
        outlives=outlives,
    )


def _inherited(name: str, words: Sequence[Argument]) -> tuple[Inherits, Sequence[str]]:
    """Return which of the variables around it a wrapper passes on, and the names that it always passes."""
    texts = [word.text or "" for word in words[1:]]
    own = list(itertools.takewhile(lambda text: text.startswith("-"), texts))
    if name == "env":
        return (
            "none" if any(re.fullmatch(r"-\w*i\w*|-|--ignore-environment", text) for text in own) else "all"
        ), ()
    if name == "exec":
        return ("none" if any(re.fullmatch(r"-[cl]*c[cl]*", text) for text in own) else "all"), ()
    if name in ("sudo", "doas"):
        kept = [text for text in texts if re.fullmatch(r"-[A-Za-z]*E[A-Za-z]*|--preserve-env(=.*)?", text)]
        listed = [name for text in kept for name in text.partition("=")[2].split(",") if name]
        return ("all" if kept and not listed else "unknown"), listed
    if name in ("su", "runuser") and any(text in ("-", "-l", "--login") for text in texts):
        return "unknown", ()
    if name in OWN_VARIABLES:
        return "unknown", [text for before, text in itertools.pairwise(texts) if before in ("-e", "--env")]
    if name == "tmux":
        return "unknown", ()
    if name in ("srun", "sbatch"):
        exported = export_option(words)
        if exported is None or "ALL" in exported.split(","):
            return "all", ()
        # sbatch reads the variables of a login shell instead.
        return ("none" if name == "srun" else "unknown"), exported.split(",")
    return "all", ()
