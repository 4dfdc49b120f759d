"""Bringing lost repairs back, where a job is about to start: the patches that were agreed, and what a journal knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from verl_doctor.toolkit import apply as engine
from verl_doctor.toolkit import repatch
from verl_doctor.toolkit.change import NewFile, NewLink, ReplaceFile
from verl_doctor.toolkit.guard_files import Found
from verl_doctor.toolkit.guard_journal import from_journal
from verl_doctor.toolkit.guard_patches import missing
from verl_doctor.toolkit.patchset import Patch
from verl_doctor.toolkit.refused import Refused
from verl_doctor.toolkit.target import Target, journal_home, journal_homes

# How the launchers of processes say which one of its node this is; the first that is set counts.
_LOCAL_RANK = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMI_LOCAL_RANK",
    "MPI_LOCALRANKID",
)
_PAUSE = 0.25


def is_first_of_node(environ: Mapping[str, str]) -> bool:
    """Whether this process is the one of its node that repairs: local rank 0, or no rank at all."""
    said = next((environ[name] for name in _LOCAL_RANK if environ.get(name)), "0")
    return said == "0"


def bring_back(lost: Iterable[Found], tree: Path | None, target: Target) -> list[str]:
    """Repair these files through the change engine, and say what cannot be brought back, a sentence for each.

    `tree` is the package folder of verl. What can be brought back is, all of it or nothing.
    """
    refused: list[str] = []
    states: dict[Patch, str] = {}
    changes: list[ReplaceFile | NewFile | NewLink] = []
    homes = dict.fromkeys(journal_homes(target))
    codes = set()
    for one in lost:
        codes.add(one.agreed.why)
        if one.agreed.patches and tree is not None and one.state != "gone":
            changes += repatch.changes(missing(one.agreed.patches, one.path), tree, states)
        elif change := from_journal(one, homes):
            changes.append(change)
        else:
            refused.append(
                f"{one.path}: nothing here knows how it was; verl-doctor fix --apply may repair it anew"
            )
    refused += (f"{patch.place}: {state.removeprefix('refused: ')}" for patch, state in states.items())
    if changes:
        paths = [change.path for change in changes]
        try:
            engine.apply(
                changes, journal_home(target, paths), fix="guard --apply", code=", ".join(sorted(codes))
            )
        except Refused as error:
            refused.append(str(error))
    return refused


def wait_for(settled: Callable[[], bool], patience: float) -> None:
    """Wait until another process has repaired everything, or for so many seconds."""
    until = time.monotonic() + patience
    while not settled() and time.monotonic() < until:
        time.sleep(_PAUSE)
