"""Random jobs in a separate namespace, some killed, some alive, with random ties: which processes are ended, and which are not?

    unshare --fork --pid --mount-proc --kill-child python tests/support/orphan_trials.py SEED JOBS ROOM

ROOM is that of `engines`.

Prints one JSON document of what went wrong. The expected leftovers are derived from how the jobs were created,
independently of verl-doctor: what is connected to something that runs, over any number of steps, is needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from support import engines
from support.ended import is_running
from verl_doctor.toolkit.collectors.leftovers import orphans
from verl_doctor.toolkit.collectors.leftovers.processes import LeftProcesses, left_processes
from verl_doctor.toolkit.commands.clean.process import remove
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import EndProcess, Leftover
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import process_activity
from verl_doctor.toolkit.system.end_processes import end_processes

TOGETHER = 20  # jobs at a time
TRAINER = "python3 -m verl.trainer.main_ppo"
TITLES = ("VLLM::EngineCore", "VLLM::Worker_TP0", "sglang::scheduler_TP1", "VLLM::EngineCore_DP3")
NAMELESS = "python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"
CODE = Path()
LAST_NUMBER = Path("/proc/sys/kernel/ns_last_pid")


@dataclass
class Process:
    """One process of the plan: what it is called, what it starts, what it holds, and whether it is a helper."""

    title: str
    children: list[Process] = field(default_factory=list)
    holds: list[int] = field(default_factory=list)
    helper: bool = True
    pid: int = 0

    def all(self) -> list[Process]:
        """It and all below it."""
        return [self, *(process for child in self.children for process in child.all())]


@dataclass
class Job:
    """A trainer with its helpers, and what becomes of it: it lives, is stopped, is a daemon of its own, or is killed."""

    trainer: Process
    fate: str

    @property
    def helpers(self) -> list[Process]:
        """All but the trainer."""
        return self.trainer.all()[1:]


class World:
    """The running processes."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.ties: set[frozenset[int]] = set()
        self.count: Counter[str] = Counter()

    def job(self) -> Job:
        """Return a random job."""
        dice = self.dice
        engines = [self._engine() for _ in range(dice.randint(1, 3))]
        fate = dice.choice(["killed", "killed", "killed", "alive", "stopped", "daemon"])
        return Job(Process(TRAINER, engines, helper=False), fate)

    def _engine(self) -> Process:
        dice = self.dice
        below = [Process(dice.choice(TITLES)) for _ in range(dice.choice([0, 0, 1, 2]))]
        if dice.random() < 0.2:
            below.append(Process(NAMELESS))
        if dice.random() < 0.05:
            below.append(Process("bash", helper=False))  # somebody's own program
        return Process(dice.choice(TITLES), below)

    def start(self, job: Job, strangers: Collection[Process]) -> None:
        """Tie its processes as multiprocessing does, and some of them to others; then start all."""
        descriptors: list[int] = []
        pairs = [(parent, child) for parent in job.trainer.all() for child in parent.children if child.helper]
        for parent, child in pairs:
            self._tie(parent, child, os.pipe, descriptors)
        dice = self.dice
        everybody = job.trainer.all()
        if dice.random() < 0.3 and len(everybody) > 2:
            self._tie(*dice.sample(everybody, 2), dice.choice(WAYS), descriptors)
        for stranger in strangers:
            self._tie(dice.choice(job.helpers), stranger, dice.choice(WAYS), descriptors)
            stranger.pid = stranger.pid or _fork(lambda one=stranger: _become(one), detached=True)  # type: ignore[misc]
        job.trainer.pid = _fork(lambda: _run(job.trainer), detached=job.fate == "daemon")
        for descriptor in descriptors:
            os.close(descriptor)
        _learn_numbers(job.trainer)

    def _tie(
        self, one: Process, other: Process, way: Callable[[], tuple[int, int]], descriptors: list[int]
    ) -> None:
        ends = way()
        descriptors.extend(ends)
        one.holds.append(ends[0])
        other.holds.append(ends[1])
        self.ties.add(frozenset((id(one), id(other))))

    def needed(self, jobs: Collection[Job], strangers: Collection[Process]) -> set[int]:
        """Return the helpers that are connected with something which runs and is no helper of a killed job."""
        dead = [job for job in jobs if job.fate == "killed"]
        helpers = {id(helper): helper for job in dead for helper in job.helpers if helper.helper}
        edges = self.ties | {
            frozenset((id(parent), id(child)))
            for job in dead
            for parent in job.helpers
            for child in parent.children
        }
        living = {id(process) for job in jobs if job.fate != "killed" for process in job.trainer.all()}
        living |= {id(stranger) for stranger in strangers}
        living |= {id(helper) for job in dead for helper in job.helpers if not helper.helper}
        while True:
            more = {key for edge in edges if edge & living for key in edge - living if key in helpers}
            if not more:
                return {helpers[key].pid for key in living if key in helpers}
            living |= more


def _tcp() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        return client.detach(), accepted.detach()


def _unix() -> tuple[int, int]:
    here, there = socket.socketpair()
    return here.detach(), there.detach()


WAYS = (os.pipe, _unix, _tcp)


def _fork(what: Callable[[], None], *, detached: bool = False) -> int:
    """Start something; `detached` by a parent that ends at once, in a new session. Returns its number."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        if detached:
            os.setsid()
            if os.fork():
                os._exit(0)
        os.write(writing, str(os.getpid()).encode())
        what()
    os.close(writing)
    if detached:
        os.waitpid(pid, 0)
    with os.fdopen(reading) as answer:
        return int(answer.read())


def _run(process: Process) -> None:
    """Start its children, then become the process."""
    for child in process.children:
        _fork(lambda one=child: _run(one))  # type: ignore[misc]
    _become(process)


def _become(process: Process) -> None:
    engines.load(CODE, *engines.package_of(process.title))
    engines.call(process.title)
    engines.only(process.holds)
    engines.wait()


def _learn_numbers(process: Process) -> None:
    """Record the numbers of the children in the order of their start."""
    numbers = _children(process.pid)
    assert len(numbers) == len(process.children), (process, numbers)
    for child, number in zip(process.children, sorted(numbers), strict=True):
        child.pid = number
        _learn_numbers(child)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
    return [int(word) for word in text.split()]


def look() -> LeftProcesses:
    """Return verl-doctor's judgement."""
    found = left_processes.collect(gpus=Unknown("none"), machine=Machine())
    assert isinstance(found, LeftProcesses)
    return found


def number(leftover: Leftover) -> int:
    """Return the number of a process."""
    assert isinstance(leftover.removal, EndProcess)
    return leftover.removal.pid


def trial(world: World) -> list[str]:
    """Create some jobs, let verl-doctor clean up after them, and return what went wrong."""
    world.ties.clear()
    strangers: list[Process] = []
    jobs = [world.job() for _ in range(TOGETHER)]
    for job in jobs:
        clients = [Process("python3 client.py", helper=False)] if world.dice.random() < 0.3 else []
        world.start(job, clients)
        strangers += clients
    for job in jobs:
        if job.fate == "stopped":
            os.kill(job.trainer.pid, signal.SIGSTOP)
        if job.fate == "killed":
            os.kill(job.trainer.pid, signal.SIGKILL)
            os.waitpid(job.trainer.pid, 0)
    needed = world.needed(jobs, strangers)
    helpers = {helper.pid for job in jobs if job.fate == "killed" for helper in job.helpers if helper.helper}
    expected = helpers - needed
    found = look()
    numbers = set(map(number, found.found))
    wrong = [f"said to be left over, and is not: {pid}" for pid in numbers - expected]
    wrong += [f"left over, and not said to be: {pid}" for pid in expected - numbers]
    reused = _reuse(world, found.found)
    late = _kill_late(world, jobs)
    outcomes = list(remove(found.found, Machine()))
    # The same once more without the second look: the descriptors alone must keep others safe.
    end_processes(
        [leftover.removal for leftover in found.found if isinstance(leftover.removal, EndProcess)], Machine()
    )
    world.count.update(outcome.state for outcome in outcomes)
    world.count["needed by somebody"] += len(needed)
    world.count["numbers given away"] += len(reused)
    must_run = needed | {
        process.pid
        for job in jobs
        if job.fate != "killed"
        for process in (job.helpers if job is late else job.trainer.all())
    }
    must_run |= {stranger.pid for stranger in strangers} | reused
    wrong += [f"ended, and was needed: {pid}" for pid in must_run if not is_running(pid)]
    wrong += [f"still there: {pid}" for pid in expected - reused if is_running(pid)]
    everybody = (
        {process.pid for job in jobs for process in job.trainer.all()}
        | {stranger.pid for stranger in strangers}
        | reused
    )
    for pid in everybody:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, 0)[0]:
            pass
    return wrong


def _reuse(world: World, found: Collection[Leftover]) -> set[int]:
    """End one of the leftovers, and give its number to a new process."""
    alone = [number(leftover) for leftover in found if not _children(number(leftover))]
    if not alone or (world.count["numbers given away"] and world.dice.random() < 0.5):
        return set()
    pid = world.dice.choice(alone)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        with contextlib.suppress(
            ChildProcessError
        ):  # the first process takes it off the table, and may be this one
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.001)
    try:
        LAST_NUMBER.write_text(str(pid - 1), "ascii")
    except OSError:
        return set()
    given = _fork(lambda: _become(Process("VLLM::EngineCore")))
    return {given}


def _kill_late(world: World, jobs: Collection[Job]) -> Job | None:
    """Kill a trainer after the scan: its leftovers are for the next one."""
    living = [job for job in jobs if job.fate == "alive"]
    if not living or world.dice.random() < 0.5:
        return None
    late = world.dice.choice(living)
    os.kill(late.trainer.pid, signal.SIGKILL)
    return late


def main(seed: int, jobs: int) -> None:
    """Print what went wrong in this many jobs."""
    global CODE  # noqa: PLW0603 - what is forked later reads it
    orphans.YOUNG = -1.0
    process_activity.WINDOW = 0.2
    CODE = engines.code(Path(tempfile.mkdtemp(prefix="vd-"), "code"))
    world = World(seed)
    wrong = []
    for turn in range(-(-jobs // TOGETHER)):
        wrong += [f"round {turn}: {problem}" for problem in trial(world)]
    shutil.rmtree(CODE.parent)
    print(json.dumps({"seed": seed, "wrong": wrong[:50], "count": world.count}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
