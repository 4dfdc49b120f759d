"""Running the user's job for `clean --run`: which processes it starts, and which leftovers are its own.

The job runs in this process's group, so that a terminal treats it as it would without us. Processes are known by a variable that
they inherit, or by their parents: titles of Ray's workers take the place of their variables. This process does not become the
parent of orphans (PR_SET_CHILD_SUBREAPER): some releases of Ray notice by their new parent, number 1, that their raylet has ended.
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
"""Set for the job, and inherited by what it starts."""

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FROM_KERNEL = 128  # SI_KERNEL of siginfo.h: a terminal has sent it to the whole group
_OFTEN, _SHARE = 0.5, 0.02  # seconds between two looks; which part of a processor they may take
_STILL, _ENDING = 5.0, 60.0  # seconds without a change, and in all, until what still runs counts as left
_SHARED_MEMORY = re.compile(r"(/dev/shm/\S+)$", re.MULTILINE)
_NODE = re.compile(r"--node_id=([0-9a-f]{16,})")
_ENDED = "ZX"
_MOMENT = 0.5  # seconds


@dataclass(frozen=True)
class Ended:
    """How a job ended: the exit code as a shell gives it, the signal's name or "", and how long it ran in seconds."""

    code: int
    signal: str
    seconds: float

    def __str__(self) -> str:
        return f"ended by {self.signal}" if self.signal else f"exit code {self.code}"


class Traces:
    """The processes that a job has ever had, as far as they were seen, and which leftovers they had open."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.token = secrets.token_hex(16)
        self._mine: set[tuple[int, int]] = set()
        self._others: set[tuple[int, int]] = set()
        self._living: dict[int, int] = {}
        self._opened: set[str] = set()
        self._nodes: set[str] = set()

    def begin(self, pid: int) -> None:
        """Take in the job's own process, which may end before the first look."""
        if row := row_of(pid, self._machine, command=""):
            self._mine.add((pid, row.ticks))

    def look(self) -> None:
        """Look through the table of processes once."""
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
        """Those that ran at the last look and still do."""
        rows = (
            row_of(pid, self._machine, settled_command(pid, self._machine)) for pid in sorted(self._living)
        )
        return tuple(
            row for row in rows if row and row.ticks == self._living[row.pid] and row.state not in _ENDED
        )

    def left(self, kind: Kind, path: str, among: Collection[str]) -> bool:
        """Whether a file or folder is this job's. `among` are the paths of all that appeared while it ran."""
        place = place_at(path)
        if place is None:
            return False
        if kind == "address file":  # it is written and closed: whose session lies beside it has written it
            sessions = (other for other in among if other != path and other.startswith(f"{place.folder}/"))
            return any(self.left("session folder", session, ()) for session in sessions)
        made = any(pid == place.pid for pid, _ in self._mine) if place.pid else False
        return made or path in self._opened or place.node in self._nodes

    def _row(self, pid: int) -> tuple[int, int] | None:
        """The parent of a process and its start; None when it has ended."""
        fields = (self._machine.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
        return (int(fields[1]), int(fields[19])) if len(fields) > 19 and fields[0] not in _ENDED else None

    def _is_marked(self, pid: int) -> bool:
        return f"{MARK}={self.token}\0" in (self._machine.read(f"/proc/{pid}/environ") or "")

    def _look_into(self, pids: Collection[int]) -> None:
        """Keep the leftovers-to-be that these have open or mapped."""
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
    """Which of a path and the folders that it lies in have the name of a leftover."""
    steps = path.split("/")
    above = ("/".join(steps[:length]) for length in range(2, len(steps) + 1))
    return tuple(folder for folder in above if place_at(folder))


def run(command: Sequence[str], traces: Traces, settling: Callable[[str], None]) -> Ended:
    """Run a job to its end, and wait until what it has started has ended too, or goes on. `settling` is told what is waited for.

    Ctrl-C at the terminal reaches the job by itself; what somebody sends to this process alone is passed on. A signal that
    comes when the job has ended ends the waiting. Raises OSError when the job cannot be started.
    """
    begun = time.monotonic()
    signals = _Signals()
    with signals.taken():
        # S603: it is the user's own command. Signals are blocked behind it: the job must not inherit that.
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
    """The signals that would end this process, while it runs a job and waits for what that has started."""

    def __init__(self) -> None:
        self._job: subprocess.Popen[bytes] | None = None
        self._passed: dict[int, float] = {}

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Take them: while `job` runs each goes on to it, and afterwards `wait` tells of it."""

        def pass_on(number: signal.Signals) -> None:
            # A thread of ours has taken what is blocked in this one: who has sent it is not known.
            self._pass_on(number, from_terminal=number == signal.SIGINT)

        with taken(_PASSED_ON, pass_on):
            yield

    @contextlib.contextmanager
    def blocked(self, job: subprocess.Popen[bytes]) -> Iterator[None]:
        """Block them, and the news of a child's end: `wait` learns from the kernel who has sent each."""
        self._job = job
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_PASSED_ON, signal.SIGCHLD))
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait(self, seconds: float) -> bool:
        """Wait until some time has passed or a signal comes. Whether one came that was for this process."""
        came = signal.sigtimedwait((*_PASSED_ON, signal.SIGCHLD), seconds)
        if came is None or came.si_signo == signal.SIGCHLD:
            return False
        return not self._pass_on(signal.Signals(came.si_signo), from_terminal=came.si_code == _FROM_KERNEL)

    def _pass_on(self, number: signal.Signals, *, from_terminal: bool) -> bool:
        """Give a signal to the job, which has those of the terminal already. False when the job has ended.

        What timeout(1) sends to this process it sends to the whole group as well: the same twice in a moment is passed on once.
        """
        if self._job is None or self._job.poll() is not None:
            return False
        now = time.monotonic()
        if not from_terminal and now - self._passed.get(number, -_MOMENT) >= _MOMENT:
            self._passed[number] = now
            self._job.send_signal(number)
        return True
