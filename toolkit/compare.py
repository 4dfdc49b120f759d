"""What differs between two snapshots: pure, and the same whoever shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from verl_doctor.toolkit.compare_subjects import READERS, Reader
from verl_doctor.toolkit.facts import Unknown, arguments_from, needs_of
from verl_doctor.toolkit.fleet_subjects import Answers
from verl_doctor.toolkit.snapshot import Snapshot

Weight = Literal["breaks", "matters", "noise"]

WEIGHTS: tuple[Weight, ...] = get_args(Weight)


@dataclass(frozen=True)
class Difference:
    """One thing that differs: what kind of thing, which one, and how it was and is; "" where there is no such thing.

    `nodes` are those of the new cluster that have it so, as ranges, "" on a single machine. `weight`: a rule finds a fault that
    it did not find before ("breaks"; `codes` are those rules), it may change what the job does ("matters"), or neither
    ("noise"). `why` is one line on that, and `next` what to do.
    """

    kind: str
    subject: str
    old: str
    new: str
    nodes: str = ""
    weight: Weight = "matters"
    why: str = ""
    next: str = ""
    codes: tuple[str, ...] = ()


def differences(old: Snapshot, new: Snapshot) -> list[Difference]:
    """What differs, what matters most first."""
    found = [one for reader in READERS for one in _differing(reader, old, new)]
    return sorted(found, key=lambda one: WEIGHTS.index(one.weight))


def _differing(reader: Reader, old: Snapshot, new: Snapshot) -> list[Difference]:
    before, after = _answers(reader, old), _answers(reader, new)
    if before is None or after is None:
        return []
    return [
        Difference(
            kind,
            name,
            before.get((kind, name), ""),
            after.get((kind, name), ""),
            weight="matters" if reader.matters else "noise",
            why=reader.why.format(name=name),
        )
        for kind, name in dict.fromkeys([*before, *after])
        if before.get((kind, name), "") != after.get((kind, name), "")
    ]


def _answers(reader: Reader, one: Snapshot) -> Answers | None:
    """What one side says, None when its facts are not known."""
    arguments: Mapping[str, object] | Unknown = arguments_from(needs_of(reader.read), one.get)
    return None if isinstance(arguments, Unknown) else reader.read(**arguments)
