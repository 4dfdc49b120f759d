"""What verl's releases have repaired, by file below `verl/` and by function.

The function is the one that the repair changed: a traceback names those that failed.

`toolkit/data/repairs_of_verl.json` was read from the history of verl (`tests/bench/repaired_functions.py`).
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.logs.python_errors import Frame


@dataclass(frozen=True)
class Repair:
    """A change of one function: the first release with it and its number in verl-project/verl."""

    release: str
    number: int


def repairs_of(frame: Frame, installed: str = "") -> Iterator[Repair]:
    """Yield the repairs of a frame's function newer than the installed release, the newest first.

    If the release is unknown ("" or no version), all count.
    """
    try:
        present = Version(installed) if installed else None
    except InvalidVersion:
        present = None
    file = f"/{frame.path}".rpartition("/verl/")[2]
    found = _repairs().get(f"{file}:{frame.function}", ())
    for release, number in reversed(found):
        if present is None or Version(release) > present:
            yield Repair(release, number)


@cache
def _repairs() -> Mapping[str, Sequence[tuple[str, int]]]:
    file = importlib.resources.files("verl_doctor.toolkit") / "data" / "repairs_of_verl.json"
    read: Mapping[str, Sequence[tuple[str, int]]] = json.loads(file.read_text("utf-8"))
    return read
