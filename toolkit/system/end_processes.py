"""Ends processes by number, and only the intended ones: each is opened before it is inspected.

A descriptor for each is opened.

A pidfd (pidfd_open(2), Linux 5.3) keeps referring to the process that it was opened for, even if the number
is reused.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Mapping, Sequence

from verl_doctor.toolkit.leftover import EndProcess
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.process_table import Row, own_number, row_of

TERM_TIMEOUT = 10.0  # seconds between SIGTERM and SIGKILL
_LAST = 2.0  # seconds to wait for killed processes; a process blocked in the kernel may never end
_ENDED = "ZX"


def end_processes(
    removals: Sequence[EndProcess], machine: Machine, patience: float = TERM_TIMEOUT
) -> dict[EndProcess, str]:
    """Terminate these processes in order, and kill those that do not end.

    Return why each still runs: "" if it has ended.
    """
    with contextlib.ExitStack() as held:
        outcomes: dict[EndProcess, str] = {}
        open_ends: dict[EndProcess, int] = {}
        for removal in removals:
            descriptor, outcomes[removal] = _open(removal, machine)
            if descriptor is not None:
                held.callback(os.close, descriptor)
                open_ends[removal] = descriptor
        for removal, descriptor in open_ends.items():
            outcomes[removal] = _send(descriptor, signal.SIGTERM)
        _wait(open_ends, patience)
        for removal, descriptor in open_ends.items():
            if not _wait({removal: descriptor}, 0):
                outcomes[removal] = _send(descriptor, signal.SIGKILL)
                _wait(open_ends, 0.1)
        _wait(open_ends, _LAST)
        for removal, descriptor in open_ends.items():
            ended = _wait({removal: descriptor}, 0)
            outcomes[removal] = (
                "" if ended else outcomes[removal] or "it was killed, but is blocked in the kernel"
            )
        return outcomes


def _open(removal: EndProcess, machine: Machine) -> tuple[int | None, str]:
    """Return a descriptor of the intended process, or None and the reason, "" if it has already ended."""
    if removal.pid in _own_ancestors(machine):
        return None, "it is this program, or an ancestor of it"
    try:
        descriptor = os.pidfd_open(removal.pid)
    except ProcessLookupError:
        return None, ""
    except OSError as error:
        return (
            None,
            (
                f"this kernel cannot open a process by number ({error.strerror}); end it with: kill "
                f"{removal.pid}"
            ),
        )
    # Read after opening the descriptor: if the number was reused in between, the start time differs.
    row = row_of(removal.pid, machine)
    if row is not None and row.ticks == removal.ticks and row.mine and row.state not in _ENDED:
        return descriptor, ""
    os.close(descriptor)
    if row is None or row.ticks != removal.ticks or row.state in _ENDED:
        return None, ""
    return None, "it is another user's"


def _own_ancestors(machine: Machine) -> frozenset[int]:
    """Return the numbers of this process, its ancestors, and the first process."""
    line = {1}
    row: Row | None = row_of(own_number(), machine)
    while row is not None and row.pid not in line:
        line.add(row.pid)
        row = row_of(row.parent, machine)
    return frozenset(line)


def _send(descriptor: int, number: signal.Signals) -> str:
    try:
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return ""
    except OSError as error:
        return f"no signal may be sent to it: {error.strerror}"
    return ""


def _wait(open_ends: Mapping[EndProcess, int], seconds: float) -> bool:
    """Wait until all of them have ended, at most this long. Return whether they have."""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for descriptor in open_ends.values():
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ended = selector.select(max(0.0, deadline - time.monotonic()))
            for key, _ in ended:
                selector.unregister(key.fileobj)
            if not ended and time.monotonic() >= deadline:
                return False
    return True
