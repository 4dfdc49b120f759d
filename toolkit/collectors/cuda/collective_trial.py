"""One trial of a collective: a child of the target's interpreter for all ranks, and its evaluated results."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import collective
from verl_doctor.toolkit.system.child import ending, run_probe

Remedy = tuple[tuple[str, str], ...]


LIMIT = 60.0  # seconds of one trial, most of which is importing torch


GRACE = 10.0  # for the processes that start and end the ranks


@dataclass(frozen=True)
class Trial:
    """One trial with these `variables` set.

    `works`: every rank had the right result in time. `wrong`: some rank had a wrong result. `stuck` is what
    the slowest rank was doing when it failed, `ended` how the terminated ranks ended (exit codes, signals as
    negative numbers), `messages` the errors of NCCL and torch. `first` is the duration of the first
    collective, in seconds; `bandwidth` is the bus bandwidth in GB/s (nccl-tests) with 16 MiB, 0 if not
    measured. `seconds` is the duration of the trial.
    """

    variables: Remedy = ()
    works: bool = False
    wrong: bool = False
    stuck: str = ""
    ended: tuple[int, ...] = ()
    messages: tuple[str, ...] = ()
    first: float = 0.0
    bandwidth: float = 0.0
    seconds: float = 0.0


_MOST_LINES = 6
_LONGEST_LINE = 300
# The relevant lines of a rank's output: NCCL's warnings, and the last line of a Python traceback, without the
# leading time, host and process.
_INFORMATIVE = re.compile(r"(?:.*?(NCCL WARN .*)|(\w+(?:\.\w+)*(?:Error|Exception)\b.*))")
_BEFORE_NCCL = ("starting", "importing torch", "opening the GPU")


def try_collective(
    machine: Machine, python: str, backend: str, world: int, environ: Mapping[str, str], limit: float
) -> Mapping[str, Any] | Unknown:
    """Run `world` ranks, each for `limit` seconds at most; see `probes.collective` for their results."""
    result = run_probe(
        replace(machine, environ=environ),
        python,
        collective,
        backend,
        str(world),
        str(limit),
        timeout=limit + GRACE,
    )
    if isinstance(result, Unknown):
        return result
    output, reported = result
    if not isinstance(reported, dict):
        return Unknown(f"a collective could not be tried: {ending(output, limit + GRACE)}")
    for rank in reported["ranks"]:
        stage = rank.get("stage", "starting")
        if stage in _BEFORE_NCCL:
            how = "took too long" if rank["ended"] is None else "failed"
            last_line = "".join(f": {line}" for line in list(_informative(rank["printed"]))[-1:])
            return Unknown(f"a collective could not be tried: {stage} {how}{last_line}")
    return reported


def trial_of(variables: Remedy, reported: Mapping[str, Any]) -> Trial:
    """Judge the ranks' results by the slowest and the worst of them."""
    ranks: Sequence[Mapping[str, Any]] = reported["ranks"]
    wrong = any(rank.get("wrong") for rank in ranks)
    behind = [rank for rank in ranks if rank["stage"] != "done"]
    messages = dict.fromkeys(line for rank in ranks for line in _informative(rank["printed"]))
    return Trial(
        variables,
        works=not behind and not wrong,
        wrong=wrong,
        stuck=behind[0]["stage"] if behind else "",
        ended=tuple(rank["ended"] for rank in ranks if rank["ended"] is not None),
        messages=tuple(messages)[:_MOST_LINES] if behind or wrong else (),
        first=round(max((rank.get("first", 0.0) for rank in ranks), default=0.0), 3),
        bandwidth=round(min((rank.get("bandwidth", 0.0) for rank in ranks), default=0.0), 1),
        seconds=round(float(reported["seconds"]), 1),
    )


def _informative(printed: str) -> Iterator[str]:
    for line in printed.splitlines():
        if match := _INFORMATIVE.fullmatch(line.strip()):
            yield (match[1] or match[2])[:_LONGEST_LINE]
