"""This machine's clock: whether the kernel reports it as synchronised, and its time.

The time is for comparison between nodes.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from verl_doctor.toolkit.facts import Absent, Unknown, collector

_UNSYNCHRONISED = 0x40  # STA_UNSYNC in the kernel's include/uapi/linux/timex.h
_SIZE_OF_TIMEX = 512  # bytes, more than on any architecture


@dataclass(frozen=True)
class Clock:
    """The state of the clock: `error` is the kernel's own bound, in seconds.

    `now` is in seconds since the epoch, `monotonic` since the machine started.
    """

    synchronised: bool
    error: float
    now: float
    monotonic: float


@collector()
def clock() -> Clock | Unknown:
    """Call adjtimex(2), which changes nothing when called with modes 0."""
    if sys.platform != "linux":
        return Absent("the clock is checked on Linux only")
    import ctypes  # noqa: PLC0415 - a few milliseconds

    # struct timex: modes, offset, freq, maxerror, esterror, status..., each int padded to a long.
    answer = (ctypes.c_long * (_SIZE_OF_TIMEX // ctypes.sizeof(ctypes.c_long)))()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(answer))
    except (AttributeError, OSError) as error:
        return Unknown(f"the kernel cannot be queried about its clock: {error}")
    if state < 0:
        return Unknown("the kernel does not report whether its clock is synchronised")
    status = answer[5] & 0xFFFFFFFF
    return Clock(not status & _UNSYNCHRONISED, answer[3] / 1e6, time.time(), time.monotonic())
