"""The user's data for a rehearsal: the first rows of each file, in a private folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit import child_first_rows
from verl_doctor.toolkit.child import ask_child, ending
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

ROWS = 8  # of each file: a step takes two, and verl shuffles
_LIMIT = 60.0  # seconds
_FORMATS = (".parquet", ".json", ".jsonl")  # verl/utils/dataset/rl_dataset.py


@dataclass(frozen=True)
class Rows:
    """A data file for the rehearsal, and its columns; none where they are not known."""

    path: Path
    columns: tuple[str, ...] = ()


def first_rows(
    machine: Machine, python: str, named: tuple[str, ...], folder: Path
) -> tuple[Rows, ...] | Unknown:
    """Copy the first rows of these files into `folder`. A file whose format is verl's or a dataset class's own matter stays where it is.

    Unknown says which file cannot be read, and why.
    """
    paths = [Path(os.path.normpath(machine.cwd / machine.expanded(name))) for name in named]
    for path in paths:
        if not os.path.exists(path):
            return Unknown(f"the data file {path} is not there")
    places = {
        path: folder / f"{number}-{path.name}"
        for number, path in enumerate(paths)
        if path.suffix in _FORMATS and os.path.isfile(path)
    }
    pairs = [str(path) for pair in places.items() for path in pair]
    if not pairs:
        return tuple(map(Rows, paths))
    folder.mkdir(parents=True, exist_ok=True)
    heard = ask_child(machine, python, child_first_rows, str(ROWS), *pairs, timeout=_LIMIT)
    if isinstance(heard, Unknown):
        return heard
    answer, told = heard
    if not isinstance(told, list) or len(told) != len(places):
        return Unknown(f"the first rows of {', '.join(named)} could not be copied: {ending(answer, _LIMIT)}")
    found = {}
    for (path, place), one in zip(places.items(), told, strict=True):
        if isinstance(one, str):
            return Unknown(f"the data file {path} cannot be read: {one}")
        count, columns = one
        if not count:
            return Unknown(f"the data file {path} has no rows")
        found[path] = Rows(place, tuple(columns))
    return tuple(found.get(path, Rows(path)) for path in paths)
