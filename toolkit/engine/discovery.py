"""Finds the interpreter that a user in this folder would expect to be examined.

In this order: `--python`, the active environment, `.venv` here or above, the environment that the launch
script names, the environment that runs the doctor. An environment that holds nothing of a job, such as an
active conda base, gives way to a later one that does. A checkout of verl is found later, among the trees of
the chosen interpreter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.ownership import why_any_not_ours, why_not_ours
from verl_doctor.toolkit.target import Environment, Options, Target
from verl_doctor.toolkit.target import discover as target_of

if TYPE_CHECKING:
    from verl_doctor.toolkit.engine.script_interpreter import NamedInterpreter

_ACTIVE = frozenset({"virtual environment", "conda environment"})
_JOB = frozenset({"verl", "vllm", "torch", "ray", "sglang"})
_EDITABLE = ("verl-", "__editable__.verl", "__editable___verl")
_SITES = (
    "lib*/python3*/site-packages",
    "lib/python3/dist-packages",
    "lib/python3*/dist-packages",
    "local/lib/python3*/dist-packages",
)


@dataclass(frozen=True)
class _Candidate:
    """An interpreter, how it was found, and where that is written."""

    python: Path
    chosen_by: Environment
    chosen_at: str = ""

    @property
    def holds_a_job(self) -> bool:
        """Whether a package of a verl job is installed there."""
        prefix = self.python.parent.parent
        return any(_is_of_a_job(site) for pattern in _SITES for site in prefix.glob(pattern))


def discover(options: Options, machine: Machine) -> Target:
    """Find the target. Raises UsageError when what the user named cannot be used."""
    target = target_of(options, machine)
    if target.chosen_by == "--python":
        return target
    passed_over = [target.passed_over] if target.passed_over else []
    first: _Candidate | None = None
    for candidate in _candidates(target, machine, passed_over):
        if candidate.holds_a_job:
            if first is not None and candidate.chosen_by != "verl-doctor's own":
                passed_over.append(f"{first.python} contains none of {', '.join(sorted(_JOB))}")
            return _with(target, candidate, passed_over)
        first = first or candidate
    return target if first is None else _with(target, first, passed_over)


def _with(target: Target, chosen: _Candidate, passed_over: Sequence[str]) -> Target:
    return replace(
        target,
        python=chosen.python,
        chosen_by=chosen.chosen_by,
        chosen_at=chosen.chosen_at,
        passed_over="; ".join(passed_over),
    )


def _candidates(target: Target, machine: Machine, passed_over: list[str]) -> Iterator[_Candidate]:
    own = _Candidate(target.python, target.chosen_by)
    if target.chosen_by in _ACTIVE:
        yield own
    yield from _beside(machine.cwd, passed_over)
    if target.files:
        from verl_doctor.toolkit.engine.script_interpreter import interpreter_of  # noqa: PLC0415 - most runs name no script, or stop before

        if found := interpreter_of(target.files[0], machine):
            if why := _why_not_obeyed(found):
                passed_over.append(
                    f"{found.python} of the launch script is not used: {why}; if you trust it, name it "
                    "with --python"
                )
            else:
                yield _Candidate(found.python, "launch script", found.place)
    if target.chosen_by not in _ACTIVE:
        yield own


def _beside(cwd: Path, passed_over: list[str]) -> Iterator[_Candidate]:
    """Yield the nearest `.venv`. Another user's is not run."""
    for folder in (cwd, *cwd.parents):
        python = folder / ".venv" / "bin" / "python"
        if os.path.exists(python):
            if why := _why_not_run(folder / ".venv"):
                passed_over.append(f"{folder / '.venv'} is not used: {why}")
            else:
                yield _Candidate(python, ".venv")
            return


def _why_not_run(venv: Path) -> str:
    """Return why another user may decide what the Python of an environment runs; "" if none may.

    That is whoever may write to its program, to pyvenv.cfg, which names the standard library, or to a folder
    of its packages. The program that it links to outside is the choice of whoever created it.
    """
    own = [venv / "bin", venv / "pyvenv.cfg"]
    for library in (venv / "lib", venv / "lib64"):
        own += [library, *library.glob("python*"), *library.glob("python*/site-packages")]
    if not (python := venv / "bin" / "python").is_symlink():
        own.append(python)
    return why_not_ours(venv, group_counts=False) or why_any_not_ours(own, group_counts=False)


def _why_not_obeyed(named: NamedInterpreter) -> str:
    """Return why another user may both have chosen an interpreter and decide what it runs; "" otherwise.

    A script of this user's may name a colleague's environment, and a colleague's script one of this user's.
    """
    files = dict.fromkeys(path for file in named.read for path in (file, Path(os.path.realpath(file))))
    chosen = why_any_not_ours(files, group_counts=False)
    runs = _why_not_run(named.python.parent.parent) if chosen else ""
    return f"{chosen}, and {runs}" if runs else ""


def _is_of_a_job(site: Path) -> bool:
    try:
        return any(entry.name in _JOB or entry.name.startswith(_EDITABLE) for entry in site.iterdir())
    except OSError:
        return False
