"""The errors that the NVIDIA driver has written to the kernel log, by their Xid numbers."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine

_LIMIT = 3.0  # seconds
_KEPT = 20
# NVRM: Xid (PCI:0000:c6:00): 79, pid=1101234, name=nvc:[driver], GPU has fallen off the bus.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+),")
_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;")  # of /dev/kmsg: priority, number, microseconds since the start
_STAMP = re.compile(r"\[ *(\d+)\.\d+\]")  # of dmesg: seconds since the start


@dataclass(frozen=True)
class Xid:
    """An error: its number, and the GPU's PCI address ("0000:c6:00").

    `age` is in seconds, None if unknown. `nonfatal`: the driver reports an NVLink error as nonfatal.
    """

    number: int
    place: str
    age: float | None
    nonfatal: bool = False


@dataclass(frozen=True)
class Xids:
    """The last errors in the kernel log, oldest first. The log reaches back to boot at the most."""

    errors: tuple[Xid, ...] = ()


@collector()
def xids(machine: Machine, gpus: Gpus) -> Xids | Unknown:
    """Read /dev/kmsg or the output of dmesg, if this user may."""
    if not gpus.devices and not gpus.refused:
        return Xids()
    log = _kmsg(machine)
    if log is None:
        log = _dmesg(machine)
    if log is None:
        return Unknown("the kernel log, to which the driver writes errors of GPUs, is not readable here")
    now = _since_start(machine)
    found = []
    for line in log.splitlines():
        error = _XID.search(line)
        if error:
            at = _seconds(line)
            age = None if at is None or now is None else max(now - at, 0.0)
            place = error[1].lower().partition(".")[0]
            found.append(Xid(int(error[2]), place, age, nonfatal="nonfatal" in line.lower()))
    return Xids(tuple(found[-_KEPT:]))


def _kmsg(machine: Machine) -> str | None:
    """Return all records that the kernel still has.

    Each read returns one record; the last fails because it would block.
    """
    try:
        descriptor = os.open(machine.at("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    parts: list[bytes] = []
    deadline = time.monotonic() + _LIMIT
    try:
        while time.monotonic() < deadline and (part := _next(descriptor)):
            parts.append(part)
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def _next(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except BrokenPipeError:  # this record was overwritten; read the oldest one left
        return _next(descriptor)
    except OSError:
        return b""


def _dmesg(machine: Machine) -> str | None:
    try:
        output = machine.run(["dmesg"], timeout=_LIMIT)
    except OSError:
        return None
    return output.stdout if output.code == 0 else None


def _seconds(line: str) -> float | None:
    if record := _RECORD.match(line):
        return int(record[1]) / 1e6
    stamp = _STAMP.search(line)
    return float(stamp[1]) if stamp else None


def _since_start(machine: Machine) -> float | None:
    words = (machine.read("/proc/uptime") or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None
