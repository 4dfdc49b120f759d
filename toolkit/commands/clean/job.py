"""Run the user's job for `clean --run`, and determine the processes it starts and its leftovers.

The job runs in this process's group, so that a terminal treats it as it would without us. Its processes are
recognised by an inherited variable or by their parents, because Ray replaces the variables of its workers
with their titles. This process does not become the parent of orphans (PR_SET_CHILD_SUBREAPER): some releases
of Ray detect that their raylet has ended by their new parent, process 1.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.leftovers.places import place_at
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import Kind
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process.signals import taken
from verl_doctor.toolkit.system.process_table import Row, numbers, open_files, row_of, settled_command
from verl_doctor.toolkit.system.unix_sockets import unix_sockets

MARK = "VERL_DOCTOR_RUN"
"""Set for the job and inherited by its processes."""

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FROM_KERNEL = 128  # SI_KERNEL of siginfo.h: sent by a terminal to the whole group
_OFTEN, _SHARE = 0.5, 0.02  # seconds between two looks; the share of a processor that they may take
_STILL, _ENDING = 5.0, 60.0  # seconds without a change, and in total, until what runs is left over
_SHARED_MEMORY = re.compile(r"(/dev/shm/\S+)$", re.MULTILINE)
_NODE = re.compile(r"--node_id=([0-9a-f]{16,})")
_ENDED = "ZX"
_MOMENT = 0.5  # seconds


@dataclass(frozen=True)
class Ended:
    """How a job ended: the shell's exit code, the signal's name or "", and the duration in seconds."""

    code: int
    signal: str
    seconds: float

    def __str__(self) -> str:
        return f"ended by {self.signal}" if self.signal else f"exit code {self.code}"


class Traces:
    """All processes of a job that were seen, and the leftovers that they had open."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.token = secrets.token_hex(16)
        self._mine: set[tuple[int, int]] = set()
        self._others: set[tuple[int, int]] = set()
        self._living: dict[int, int] = {}
        self._opened: set[str] = set()
        self._nodes: set[str] = set()

    def begin(self, pid: int) -> None:
        """Record the job's own process, which may end before the first look."""
        if row := row_of(pid, self._machine, command=""):
            self._mine.add((pid, row.ticks))

    def look(self) -> None:
        """Scan the process table once."""
        listed = numbers(self._machine)
        table = {
            pid: row for pid in ([] if isinstance(listed, Unknown) else listed) if (row := self._row(pid))
        }
        new = {(pid, ticks) for pid, (_, ticks) in table.items()} - self._mine
        self._others &= new
        self._mine |= {known for known in new - self._others if self._is_marked(known[0])}
        while more := {
            (pid, ticks)
            for pid, ticks in new - self._mine
            if (parent := table[pid][0]) in table and (parent, table[parent][1]) in self._mine
        }:
            self._mine |= more
        self._others = new - self._mine
        self._living = {pid: ticks for pid, (_, ticks) in table.items() if (pid, ticks) in self._mine}
        self._look_into(self._living)

    def living(self) -> tuple[Row, ...]:
        """Return the processes that ran at the last look and still do."""
        rows = (
            row_of(pid, self._machine, settled_command(pid, self._machine)) for pid in sorted(self._living)
        )
        return tuple(
            row for row in rows if row and row.ticks == self._living[row.pid] and row.state not in _ENDED
        )

    def left(self, kind: Kind, path: str, among: Collection[str]) -> bool:
        """Return whether a file or folder belongs to this job.

        `among` are all paths that appeared while it ran.
        """
        place = place_at(path)
        if place is None:
            return False
        if kind == "address file":  # already closed: written by the session next to it
            sessions = (other for other in among if other != path and other.startswith(f"{place.folder}/"))
            return any(self.left("session folder", session, ()) for session in sessions)
        made = any(pid == place.pid for pid, _ in self._mine) if place.pid else False
        return made or path in self._opened or place.node in self._nodes

    def _row(self, pid: int) -> tuple[int, int] | None:
        """Return the parent and the start time of a process, None if it has ended."""
        fields = (self._machine.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
        return (int(fields[1]), int(fields[19])) if len(fields) > 19 and fields[0] not in _ENDED else None

    def _is_marked(self, pid: int) -> bool:
        return f"{MARK}={self.token}\0" in (self._machine.read(f"/proc/{pid}/environ") or "")

    def _look_into(self, pids: Collection[int]) -> None:
        """Record the potential leftovers that these processes have open or mapped."""
        links: set[str] = set()
        for pid in pids:
            with contextlib.suppress(OSError):
                links |= set(open_files(pid, self._machine))
            links |= set(_SHARED_MEMORY.findall(self._machine.read(f"/proc/{pid}/maps") or ""))
            self._nodes |= set(_NODE.findall(self._machine.read(f"/proc/{pid}/cmdline") or ""))
        if any(link.startswith("socket:") for link in links):
            links |= {
                bound.path for bound in unix_sockets(self._machine) if f"socket:[{bound.inode}]" in links
            }
        self._opened |= {path for link in links if link.startswith("/") for path in _leftovers_in(link)}


@functools.lru_cache(10_000)
def _leftovers_in(path: str) -> tuple[str, ...]:
    """Return those of a path and its parent folders that are named like a leftover."""
    steps = path.split("/")
    above = ("/".join(steps[:length]) for length in range(2, len(steps) + 1))
    return tuple(folder for folder in above if place_at(folder))


def run(command: Sequence[str], traces: Traces, settling: Callable[[str], None]) -> Ended:
    """Run a job to its end, then wait until its processes have ended or settled.

    `settling` is called with what is awaited.

    Ctrl-C at the terminal reaches the job directly; signals sent to this process alone are passed on. A
    signal that arrives after the end of the job ends the waiting. Raises OSError if the job cannot be
    started.
    """
    begun = time.monotonic()
    signals = _Signals()
    with signals.taken():
        # S603: this is the user's own command. Signals are blocked after it starts: the job must not inherit
        # the mask.
        job = subprocess.Popen(list(command), env={**os.environ, MARK: traces.token})
        traces.begin(job.pid)
        with signals.blocked(job):
            pause = 0.0
            while job.poll() is None:
                signals.wait(pause)
                looked = time.thread_time()
                if job.poll() is None:
                    traces.look()
                pause = max(_OFTEN, (time.thread_time() - looked) / _SHARE)
            ended = _ended(job.returncode, time.monotonic() - begun)
            traces.look()
            _settle(traces, signals, settling)
    return ended


def _settle(traces: Traces, signals: _Signals, settling: Callable[[str], None]) -> None:
    begun = changed = time.monotonic()
    before = traces.living()
    if before:
        settling("waiting for what the job has started")
    while before and time.monotonic() < min(changed + _STILL, begun + _ENDING):
        if signals.wait(_OFTEN):
            return
        traces.look()
        now = traces.living()
        if {row.pid for row in now} != {row.pid for row in before}:
            changed, before = time.monotonic(), now


def _ended(returned: int, seconds: float) -> Ended:
    if returned >= 0:
        return Ended(returned, "", seconds)
    try:
        name = signal.Signals(-returned).name
    except ValueError:
        name = f"signal {-returned}"
    return Ended(128 - returned, name, seconds)


class _Signals:
    """Handle signals that would end this process while it runs a job and waits for the job's processes."""

    def __init__(self) -> None:
        self._job: subprocess.Popen[bytes] | None = None
        self._passed: dict[int, float] = {}

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Handle the signals: each is passed to `job` while it runs; afterwards `wait` reports it."""

        def pass_on(number: signal.Signals) -> None:
            # Another of our threads took a signal that is blocked in this one, so the sender is unknown.
            self._pass_on(number, from_terminal=number == signal.SIGINT)

        with taken(_PASSED_ON, pass_on):
            yield

    @contextlib.contextmanager
    def blocked(self, job: subprocess.Popen[bytes]) -> Iterator[None]:
        """Block the signals and SIGCHLD: `wait` gets the sender of each from the kernel."""
        self._job = job
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGCHLD))
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait(self, seconds: float) -> bool:
        """Wait for a signal or the timeout. Return whether a signal for this process arrived."""
        came = signal.sigtimedwait((*_PASSED_ON, signal.SIGCHLD), seconds)
        if came is None or came.si_signo == signal.SIGCHLD:
            return False
        return not self._pass_on(signal.Signals(came.si_signo), from_terminal=came.si_code == _FROM_KERNEL)

    def _pass_on(self, number: signal.Signals, *, from_terminal: bool) -> bool:
        """Send a signal to the job, unless the terminal has already done so.

        Return False if the job has ended.

        timeout(1) signals both this process and the whole group: the same signal twice in a moment is passed
        on once.
        """
        if self._job is None or self._job.poll() is not None:
            return False
        now = time.monotonic()
        if not from_terminal and now - self._passed.get(number, -_MOMENT) >= _MOMENT:
            self._passed[number] = now
            self._job.send_signal(number)
        return True
