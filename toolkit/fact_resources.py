"""What this machine has for a job: GPUs as the driver's own tool lists them, CPUs and memory as far as this process may use them.

Limits of a control group count: https://docs.kernel.org/admin-guide/cgroup-v2.html (cpu.max, memory.max).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.machine import Machine

_FORMAT = "--format=csv,noheader,nounits"
# Drivers before 510 refuse to be asked for compute_cap.
_QUERIES = (
    ("nvidia-smi", "--query-gpu=name,memory.total,compute_cap", _FORMAT),
    ("nvidia-smi", "--query-gpu=name,memory.total", _FORMAT),
)
_LINE = re.compile(r"(.+?),\s*(\d+)\s*(?:,\s*(\d+\.\d+)?.*)?")
_UNLIMITED = 1 << 60


class Capability(NamedTuple):
    """A compute capability with the fields and the order of vLLM's DeviceCapability."""

    major: int
    minor: int

    @classmethod
    def read(cls, text: str) -> Capability:
        """`9.0` as two numbers."""
        major, _, minor = text.partition(".")
        return cls(int(major), int(minor))


@dataclass(frozen=True)
class Gpu:
    """One GPU, and its memory in MiB. `capability` is its compute capability ("9.0"), empty when it is not said."""

    name: str
    memory: int
    capability: str = ""


@dataclass(frozen=True)
class Resources:
    """`gpus` are those that a job started from here would see; None when that cannot be told (no driver's tool that answers).

    `cpus` may be a fraction, `memory` is in bytes, None when the system does not say. `why` says why the GPUs are not known.
    """

    gpus: tuple[Gpu, ...] | None
    cpus: float | None
    memory: int | None
    why: str = ""


@collector(timeout=15)
def resources(machine: Machine) -> Resources:
    """Ask nvidia-smi for GPUs, and the kernel for the rest."""
    gpus, why = _gpus(machine)
    return Resources(gpus, _cpus(), _memory(), why)


def _gpus(machine: Machine) -> tuple[tuple[Gpu, ...] | None, str]:
    try:
        answer = machine.run(_QUERIES[0], timeout=7)
        if answer.code:
            answer = machine.run(_QUERIES[1], timeout=7)
    except OSError:
        return None, "there is no nvidia-smi here"
    if answer.code != 0:
        return (
            None,
            f"nvidia-smi did not answer: {answer.said}" if answer.code is not None else "nvidia-smi hangs",
        )
    matches = filter(None, map(_LINE.fullmatch, answer.stdout.splitlines()))
    found = [Gpu(match[1].strip(), int(match[2]), match[3] or "") for match in matches]
    return _visible(tuple(found), machine.environ.get("CUDA_VISIBLE_DEVICES")), ""


def _visible(gpus: tuple[Gpu, ...], chosen: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves. It may name them by number, or by a unique beginning of their UUID."""
    if chosen is None:
        return gpus
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    if all(name.isdigit() for name in names):
        return tuple(gpus[int(name)] for name in names if int(name) < len(gpus))
    return gpus[: len(names)]


def _cpus() -> float | None:
    allowed = (
        float(len(os.sched_getaffinity(0)))
        if hasattr(os, "sched_getaffinity")
        else float(os.cpu_count() or 0)
    )
    quota = _read("/sys/fs/cgroup/cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]):
        allowed = min(allowed, int(quota[0]) / int(quota[1]))
    return allowed or None


def _memory() -> int | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    amounts = [int(match[1]) * 1024] if match else []
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = _read(path).strip()
        if limit.isdigit() and int(limit) < _UNLIMITED:
            amounts.append(int(limit))
    return min(amounts, default=None)


def _read(path: str) -> str:
    try:
        return Path(path).read_text("ascii", "replace")
    except OSError:
        return ""
