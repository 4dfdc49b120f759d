"""Restore lost repairs where a job is about to start, from the agreed patches and a journal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.change import NewFile, NewLink, ReplaceFile
from verl_doctor.toolkit.changes import apply as engine
from verl_doctor.toolkit.changes import links
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter, interpreter
from verl_doctor.toolkit.commands.guard.files import Found
from verl_doctor.toolkit.commands.guard.gate import Gate
from verl_doctor.toolkit.commands.guard.journal import from_journal
from verl_doctor.toolkit.commands.guard.patches import missing
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.patchsets import repatch
from verl_doctor.toolkit.patchsets.patchset import AnyPatch
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.target import Target, journal_home, journal_homes

# The variables with which launchers give a process its local rank; the first that is set counts.
_LOCAL_RANK = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_LOCAL_RANK",
    "MPI_LOCALRANKID",
)
_PAUSE = 0.25


def is_first_of_node(environ: Mapping[str, str]) -> bool:
    """Return whether this process repairs for its node: local rank 0, or no rank at all."""
    local_rank = next((environ[name] for name in _LOCAL_RANK if environ.get(name)), "0")
    return local_rank == "0"


@dataclass(frozen=True)
class Outcome:
    """The result of restoring repairs: the files written, and a sentence for each that was not."""

    written: tuple[Path, ...] = ()
    refused: tuple[str, ...] = ()


def bring_back(gate: Gate, lost: Iterable[Found]) -> Outcome:
    """Repair these files through the change engine: everything that can be restored, or nothing."""
    target, refused = gate.target, []
    states: dict[AnyPatch, str] = {}
    changes: list[ReplaceFile | NewFile | NewLink] = []
    homes = dict.fromkeys(journal_homes(target))
    codes = set()
    for found in lost:
        codes.add(found.agreed.why)
        if found.agreed.patches and gate.tree is not None and found.state != "gone":
            if why := _why_not_there(gate, gate.tree):
                refused.append(f"{found.path}: {why}")
                continue
            changes += repatch.changes(_of_file(found, gate.tree), gate.tree, states)
        elif change := from_journal(found, homes):
            changes.append(change)
        else:
            refused.append(
                f"{found.path}: its repaired content is not recorded; verl-doctor fix --apply may "
                "repair it again"
            )
    refused += (f"{patch.place}: {state.removeprefix('refused: ')}" for patch, state in states.items())
    if changes:
        paths = links.places(changes)
        try:
            engine.apply(
                changes, journal_home(target, paths), fix="guard --apply", code=", ".join(sorted(codes))
            )
        except Refused as error:
            return Outcome((), (*refused, str(error)))
    return Outcome(tuple(change.path for change in changes), tuple(refused))


def _why_not_there(gate: Gate, tree: Path) -> str:
    """Return why a tree must not be patched, whatever the agreement contains; "" if it may.

    The reason is that this job does not import it.
    """
    real, bases = Path(os.path.realpath(tree)), gate.here.bases
    if any(real.is_relative_to(os.path.realpath(base)) for base in (bases.environment, bases.project)):
        return ""
    if real == _imported(gate):
        return ""
    return (
        f"it lies outside {bases.environment} and {bases.project}, and this job does not import verl from "
        "there"
    )


def _imported(gate: Gate) -> Path | None:
    """Return the package folder of the verl the job imports, by its interpreter unless the user names one."""
    if gate.target.verl is not None:
        return Path(os.path.realpath(gate.target.verl))
    answer = Collection((interpreter,), {Machine: gate.here.machine, Target: gate.target}).get(Interpreter)
    return None if isinstance(answer, Unknown) or not answer.verl else Path(os.path.realpath(answer.verl))


def _of_file(lost: Found, tree: Path) -> list[AnyPatch]:
    """Return the patches that a file lacks. Raises Refused if the agreement has them for another file."""
    patches = missing(lost.agreed.patches, lost.path)
    if stray := next((patch.path for patch in patches if not _same(tree / patch.path, lost.path)), ""):
        raise Refused(f"the agreement is damaged: among the patches of {lost.path} is one of {stray}")
    return patches


def _same(first: Path, other: Path) -> bool:
    return os.path.realpath(first) == os.path.realpath(other)


def wait_for(settled: Callable[[], bool], patience: float) -> None:
    """Wait until another process has repaired everything, or the time is over."""
    until = time.monotonic() + patience
    while not settled() and time.monotonic() < until:
        time.sleep(_PAUSE)
