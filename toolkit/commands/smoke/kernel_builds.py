"""Detect GPU code compilers among a trial's processes: a start that takes minutes due to nvcc is no hang.

FlashInfer ships its kernels as sources, and runs ninja and nvcc for those that are in no cache
(flashinfer/jit/cpp_ext.py); the output path names the kernel.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import row_of
from verl_doctor.toolkit.text import listed

# ninja runs nvcc, which runs the others. Triton needs only ptxas of them, and only briefly.
_COMPILERS = frozenset({"ninja", "nvcc", "cicc", "cudafe++"})
_KERNEL = re.compile(r"/cached_ops/([\w.-]+)/")
_SHOWN = 3
_SAMPLER = "sampling"


@dataclass(frozen=True)
class Builds:
    """What was compiled and for how many seconds.

    `kernels` are FlashInfer's, by name; `going_on`: still at the last look.
    """

    seconds: float
    kernels: tuple[str, ...] = ()
    going_on: bool = False

    @property
    def what(self) -> str:
        """A short description: "FlashInfer's kernel sampling"."""
        if not self.kernels:
            return "kernels for GPUs"
        return f"FlashInfer's kernel{'s' * (len(self.kernels) > 1)} {listed(self.kernels, _SHOWN)}"

    @property
    def remedy(self) -> str:
        """How to avoid the wait at the next start."""
        remedy = "compile once before the job with verl-doctor warmup --engine"
        if self.kernels:
            remedy += (
                ", or install flashinfer-jit-cache of FlashInfer's version (verl-doctor explain CUDA130)"
            )
        return f"{remedy}; or VLLM_USE_FLASHINFER_SAMPLER=0" if _SAMPLER in self.kernels else remedy


class KernelBuilds:
    """Looks for compilers repeatedly."""

    def __init__(self, machine: Machine, clock: Callable[[], float] = time.monotonic) -> None:
        self._machine, self._clock = machine, clock
        self._seconds, self._last, self._going_on = 0.0, clock(), False
        self._kernels: dict[str, None] = {}

    def look(self, processes: Collection[tuple[int, int]]) -> None:
        """Find the compilers among these processes, which are identified by number and start."""
        now = self._clock()
        if self._going_on:
            self._seconds += now - self._last
        rows = [row for pid, ticks in processes if (row := row_of(pid, self._machine)) and row.ticks == ticks]
        working = [row.command for row in rows if row.title.rpartition("/")[2] in _COMPILERS]
        self._last, self._going_on = now, bool(working)
        for command in working:
            self._kernels.update(dict.fromkeys(_KERNEL.findall(command)))

    @property
    def found(self) -> Builds | None:
        """What was seen so far; None for nothing."""
        if not self._going_on and not self._seconds:
            return None
        return Builds(self._seconds, tuple(self._kernels), self._going_on)
