"""Many kinds of living process that look like a dead job's, and some that are one, in a namespace of their own: who is ended?

    unshare --fork --pid --mount-proc --mount --net --kill-child python tests/support/living_processes.py SEED ROUNDS USER PROC ROOM

USER is a number; ROOM is that of `engines`. PROC are options with which /proc is mounted, such as "hidepid=2", or "-" for none. With 0 rounds all kinds are planted together, else a random part of them in each.
Prints one JSON document: the kinds, the rounds, and what was lost or left.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import random
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support import engines
from support.ended import is_running
from verl_doctor.toolkit.collectors.leftovers import orphans
from verl_doctor.toolkit.collectors.leftovers.processes import LeftProcesses, left_processes
from verl_doctor.toolkit.commands.clean.process import remove
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system import process_activity

ENGINE = "VLLM::EngineCore"
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_FILES, _CLONE_NEWNS, _CLONE_NEWNET, _CLONE_NEWTIME = 0x400, 0x20000, 0x40000000, 0x80
_CLONE_NEWIPC = 0x8000000
_SET_SIGNAL = 10  # F_SETSIG
_IO_URING_SETUP, _IO_URING_ENTER, _IO_URING_REGISTER = 425, 426, 427  # on all architectures
_SEIZE = 0x4206  # PTRACE_SEIZE
_kept: list[object] = []


class NotHereError(Exception):
    """This kernel or this user does not support such a process."""


@dataclass
class Stage:
    """The place of a round: a folder, and other running processes."""

    folder: Path
    user: int
    code: Path
    number: int = 0

    def path(self, name: str = "file") -> Path:
        """Return an unused path."""
        self.number += 1
        return self.folder / f"{os.getpid()}-{self.number}-{name}"


Act = Callable[[Stage], None]
"""What a process does before it waits; it may continue forever."""


@dataclass(frozen=True)
class Kind:
    """One kind of process. `here` happens in the process, `before` in the one that plants it and in which descriptors are made.

    `partner` lives on and holds what `before` has made. `lost` says that the pipe to its driver has nobody at the other end,
    `driver` is the driver's title while that lives. `title` is what it is called, `runs` the packages whose code it has mapped.
    """

    name: str
    here: Act = lambda _: None
    title: str = ENGINE
    runs: tuple[str, ...] = ("vllm",)
    before: Callable[[Stage], tuple[list[int], list[int]]] = lambda _: ([], [])
    partner: Act | None = None
    lost: bool = True
    driver: str = ""
    roots: bool = False
    partners_user: int | None = None
    dies: bool = False


KINDS: list[Kind] = []


def kind(name: str, **fields: object) -> Callable[[Act], Act]:
    """Add a kind that runs the function."""

    def add(here: Act) -> Act:
        KINDS.append(Kind(name, here, **fields))  # type: ignore[arg-type]
        return here

    return add


def nothing(_: Stage) -> None:
    """Only wait."""


def plain(name: str, **fields: object) -> None:
    """Add a kind that does nothing."""
    kind(name, **fields)(nothing)


# --- Of no job: a title proves nothing.
plain("a title without code", runs=())
plain("a Gearman worker", title="Gearman::Worker", runs=())
plain("a worker of somebody's team", title="MyTeam::Worker_3", runs=())
plain("a prefix that nobody has set", title="MyTeam::EngineCore")
plain("a title of Ray with code of vLLM", title="ray::Trainer")
plain("a title of vLLM with code of Ray", runs=("ray",))
plain("a server that anybody may ask", title="VLLM::APIServer_0")
plain("code of vLLM in a program of another name", title="notes-server --daemon")
# --- No process has ended.
plain("a daemon that nobody was at the other end of", lost=False)
plain("a job that runs", lost=False, driver="python3 -m verl.trainer.main_ppo")
plain("a service under a supervisor", lost=False, driver="runsv engine")
plain("a child of tmux", lost=False, driver="tmux: server")


def listener(family: int, kind_of: int, address: object, protocol: int = 0) -> Act:
    """Bind a socket, and listen where there is something to listen."""

    def here(stage: Stage) -> None:
        try:
            one = socket.socket(family, kind_of, protocol)
        except OSError as error:
            raise NotHereError from error
        where = str(stage.path("socket")) if address == "path" else address
        one.bind(where)
        if kind_of in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            one.listen()
        _kept.append(one)

    return here


for _name, _family, _type, _address in (
    ("TCP", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
    ("TCP on all addresses", socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),
    ("TCP of IPv6", socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
    ("a Unix stream", socket.AF_UNIX, socket.SOCK_STREAM, "path"),
    ("a Unix seqpacket", socket.AF_UNIX, socket.SOCK_SEQPACKET, "path"),
    ("a Unix datagram socket", socket.AF_UNIX, socket.SOCK_DGRAM, "path"),
    ("an abstract Unix socket", socket.AF_UNIX, socket.SOCK_STREAM, ""),
    ("an abstract datagram socket", socket.AF_UNIX, socket.SOCK_DGRAM, ""),
    ("UDP", socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
    ("UDP of IPv6", socket.AF_INET6, socket.SOCK_DGRAM, ("::1", 0)),
    ("vsock", getattr(socket, "AF_VSOCK", 40), socket.SOCK_STREAM, (0xFFFFFFFF, 0xFFFFFFFF)),
):
    kind(f"an idle listener: {_name}")(listener(_family, _type, _address))
kind("UDP-Lite")(listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0), 136))
kind("SCTP")(listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), 132))
kind("MPTCP")(listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0), 262))
kind("MPTCP of IPv6")(listener(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0), 262))
kind("events of devices", roots=False)(listener(socket.AF_NETLINK, socket.SOCK_RAW, (0, 1), 15))
kind("messages between processes")(listener(socket.AF_NETLINK, socket.SOCK_RAW, (0, 0), 2))


@kind("a raw socket", roots=True)
def _raw(_: Stage) -> None:
    _kept.append(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))


@kind("a packet socket", roots=True)
def _packet(_: Stage) -> None:
    _kept.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))


@kind("a UDP client that is answered")
def _udp_client(_: Stage) -> None:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.sendto(b"x", ("127.0.0.1", 9))
    _kept.append(one)


@kind("a connected UDP client")
def _udp_connected(_: Stage) -> None:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.connect(("127.0.0.1", 9))
    _kept.append(one)


# --- A process holds the other end.
def _inherited(ends: Callable[[], tuple[int, int]]) -> Callable[[Stage], tuple[list[int], list[int]]]:
    def before(_: Stage) -> tuple[list[int], list[int]]:
        here, there = ends()
        return [here], [there]

    return before


def _unix(kind_of: int) -> Callable[[], tuple[int, int]]:
    def ends() -> tuple[int, int]:
        here, there = socket.socketpair(socket.AF_UNIX, kind_of)
        return here.detach(), there.detach()

    return ends


def _tcp(
    *, serves: bool, shut: bool = False, accepted: bool = True, family: int = socket.AF_INET
) -> Callable[[], tuple[int, int]]:
    def ends() -> tuple[int, int]:
        server = socket.create_server(("127.0.0.1" if family == socket.AF_INET else "::1", 0), family=family)
        client = socket.create_connection(server.getsockname()[:2])
        if not accepted:
            return client.detach(), server.detach()
        one, _ = server.accept()
        server.close()
        if shut:
            client.shutdown(socket.SHUT_WR)
        return (one.detach(), client.detach()) if serves else (client.detach(), one.detach())

    return ends


def _unaccepted() -> tuple[int, int]:
    server = socket.socket(socket.AF_UNIX)
    server.bind("")
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(server.getsockname())
    return client.detach(), server.detach()


def _event() -> tuple[int, int]:
    one = _LIBC.eventfd(0, 0)
    return one, os.dup(one)


def _unmapped() -> tuple[int, int]:
    memory = os.memfd_create("room")
    return memory, os.dup(memory)


for _name, _ends in (
    ("a pipe that somebody writes to", os.pipe),
    ("a pipe that somebody reads", lambda: os.pipe()[::-1]),
    ("a Unix stream", _unix(socket.SOCK_STREAM)),
    ("Unix datagrams", _unix(socket.SOCK_DGRAM)),
    ("a Unix seqpacket", _unix(socket.SOCK_SEQPACKET)),
    ("a client on TCP", _tcp(serves=True)),
    ("a client on TCP of IPv6", _tcp(serves=True, family=socket.AF_INET6)),
    ("a server on TCP", _tcp(serves=False)),
    ("a client that has sent all and waits for the answer", _tcp(serves=True, shut=True)),
    ("a server on TCP that is busy", _tcp(serves=False, accepted=False)),
    ("a server on a Unix socket that is busy", _unaccepted),
    ("a shared event", _event),
    ("memory without a name that neither has mapped", _unmapped),
):
    plain(f"the other end is held: {_name}", before=_inherited(_ends), partner=nothing)
plain(
    "the other end is held by another user: a pipe",
    before=_inherited(os.pipe),
    partner=nothing,
    partners_user=0,
)
plain(
    "the other end is held by another user: a socket",
    before=_inherited(_unix(socket.SOCK_STREAM)),
    partner=nothing,
    partners_user=0,
)


def _in_flight() -> tuple[int, int]:
    """The writer's end is in a message that is not received yet."""
    reading, writing = os.pipe()
    sends, receives = socket.socketpair()
    socket.send_fds(sends, [b"x"], [writing])
    os.close(writing)
    sends.detach()
    return reading, receives.detach()


plain("the other end is on its way to somebody", before=_inherited(_in_flight), partner=nothing)


@kind("a named pipe")
def _fifo(stage: Stage) -> None:
    path = stage.path("fifo")
    os.mkfifo(path)
    _kept.append(os.open(path, os.O_RDWR))


# --- Memory and files that another process has, too.
def _made(how: Callable[[Stage], int]) -> Callable[[Stage], tuple[list[int], list[int]]]:
    def before(stage: Stage) -> tuple[list[int], list[int]]:
        one = how(stage)
        os.ftruncate(one, mmap.PAGESIZE)
        stage.number = one
        return [one], [os.dup(one)]

    return before


def _map(stage: Stage) -> None:
    _kept.append(mmap.mmap(stage.number, mmap.PAGESIZE))
    os.close(stage.number)


def _file(stage: Stage) -> int:
    return os.open(stage.path(), os.O_RDWR | os.O_CREAT, 0o600)


def _segment(stage: Stage) -> int:
    return os.open(f"/dev/shm/psm_{os.getpid():08x}{stage.number:04x}", os.O_RDWR | os.O_CREAT, 0o600)


def _memfd(_: Stage) -> int:
    return os.memfd_create("shared")


for _name, _how in (("a file on a disk", _file), ("a segment", _segment), ("memory without a name", _memfd)):
    kind(f"somebody else has it mapped: {_name}", before=_made(_how), partner=_map)(_map)
    kind(f"somebody else has it open: {_name}", before=_made(_how), partner=nothing)(_map)
kind("another user has it mapped", before=_made(_segment), partner=_map, partners_user=0)(_map)


def _anonymous(stage: Stage) -> tuple[list[int], list[int]]:
    _kept.append(mmap.mmap(-1, mmap.PAGESIZE))
    return [], []


plain("memory of a parent that is shared", before=_anonymous, partner=nothing)


def _system_v(stage: Stage) -> tuple[list[int], list[int]]:
    stage.number = _LIBC.shmget(0, mmap.PAGESIZE, 0o1666)
    return [], []


def _attach(stage: Stage) -> None:
    _LIBC.shmat.restype = ctypes.c_void_p
    _LIBC.shmat(stage.number, None, 0)


kind("memory of System V", before=_system_v, partner=_attach)(_attach)


# --- Locks.
def _locked(lock: Callable[[int], object], way: int = os.O_RDONLY) -> Act:
    def here(stage: Stage) -> None:
        path = stage.path("lock")
        path.touch()
        one = os.open(path, way)
        lock(one)
        _kept.append(one)

    return here


kind("a lock of flock")(_locked(lambda one: fcntl.flock(one, fcntl.LOCK_EX)))
kind("a shared lock")(_locked(lambda one: fcntl.flock(one, fcntl.LOCK_SH)))
kind("a lock of POSIX")(_locked(lambda one: fcntl.lockf(one, fcntl.LOCK_EX), os.O_RDWR))
kind("a lock of an open file")(
    _locked(lambda one: fcntl.fcntl(one, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0)))
)
kind("a lease")(_locked(lambda one: fcntl.fcntl(one, fcntl.F_SETLEASE, fcntl.F_RDLCK)))


# --- Work.
@kind("it computes")
def _computes(_: Stage) -> None:
    while True:
        sum(range(10_000))
        time.sleep(0.001)


@kind("it computes a little now and then")
def _little(_: Stage) -> None:
    while True:
        time.sleep(0.05)


@kind("it looks for work in a folder")
def _polls(stage: Stage) -> None:
    while True:
        list(stage.folder.iterdir())
        time.sleep(0.08)


@kind("it appends to a file")
def _appends(stage: Stage) -> None:
    path = stage.path("log")
    while True:
        with path.open("a") as file:
            file.write("line\n")
        time.sleep(0.08)


@kind("it reads a file again and again")
def _reads(stage: Stage) -> None:
    path = stage.path("data")
    path.write_text("x")
    while True:
        path.read_text()
        time.sleep(0.08)


@kind("a thread of it works")
def _thread_works(stage: Stage) -> None:
    threading.Thread(target=_polls, args=(stage,), daemon=True).start()


@kind("it writes a checkpoint")
def _checkpoint(stage: Stage) -> None:
    file = stage.path("model.safetensors").open("wb")
    file.write(b"weights")
    _kept.append(file)


# --- What wakes it, and what others need it for.
@kind("it waits for changes of a folder")
def _inotify(stage: Stage) -> None:
    one = _LIBC.inotify_init1(0)
    _LIBC.inotify_add_watch(one, os.fsencode(stage.folder), 0x100)
    _kept.append(one)


@kind("a timer")
def _timer(_: Stage) -> None:
    one = _LIBC.timerfd_create(1, 0)
    _LIBC.timerfd_settime(one, 0, struct.pack("qqqq", 0, 0, 3600, 0), None)
    _kept.append(one)


@kind("a timer of POSIX")
def _posix_timer(_: Stage) -> None:
    number = ctypes.c_void_p()
    _LIBC.timer_create(1, None, ctypes.byref(number))
    _LIBC.timer_settime(number, 0, struct.pack("qqqq", 0, 0, 3600, 0), None)


@kind("an alarm")
def _alarm(_: Stage) -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.alarm(3600)


@kind("it is told of changes in a folder by a signal")
def _notified(stage: Stage) -> None:
    signal.signal(signal.SIGIO, lambda *_: None)
    one = os.open(stage.folder, os.O_RDONLY)
    fcntl.fcntl(one, fcntl.F_NOTIFY, fcntl.DN_CREATE)
    _kept.append(one)


def _waits_in_a_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    while Path(f"/proc/self/task/{thread.native_id}/syscall").read_text() == "running\n":
        time.sleep(0.001)
    time.sleep(0.01)


@kind("it waits at a message queue")
def _message_queue(_: Stage) -> None:
    queue = _LIBC.msgget(0, 0o1600)
    _waits_in_a_thread(lambda: _LIBC.msgrcv(queue, ctypes.create_string_buffer(99), 50, 0, 0))


@kind("it waits at a semaphore")
def _semaphore(_: Stage) -> None:
    semaphores = _LIBC.semget(0, 1, 0o1600)
    _waits_in_a_thread(lambda: _LIBC.semop(semaphores, struct.pack("Hhh", 0, -1, 0), 1))


@kind("it waits for another process")
def _pidfd(_: Stage) -> None:
    _kept.append(os.pidfd_open(1))


@kind("it has a terminal for others")
def _terminal(_: Stage) -> None:
    _kept.extend(os.openpty())


@kind("a thread with descriptors of its own")
def _own_files(_: Stage) -> None:
    ready = threading.Event()

    def run() -> None:
        _LIBC.unshare(_CLONE_FILES)
        one = socket.create_server(("127.0.0.1", 0))
        ready.set()
        select.select([one], [], [])

    threading.Thread(target=run, daemon=True).start()
    ready.wait()


@kind("a child that is somebody's program")
def _child(_: Stage) -> None:
    if os.fork() == 0:
        engines.call("bash serve.sh")
        engines.wait()


@kind("a child that serves")
def _serving_child(stage: Stage) -> None:
    hears, tells = os.pipe()
    if os.fork() == 0:
        engines.call("VLLM::Worker_TP0")
        os.close(hears)
        listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))(stage)
        os.close(tells)
        engines.wait()
    os.close(tells)
    os.read(hears, 1)
    os.close(hears)


@kind("it is stopped")
def _stopped(_: Stage) -> None:
    hears, tells = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        os.close(tells)
        if os.fork() == 0:
            os.read(hears, 1)
            time.sleep(0.05)
            os.kill(parent, signal.SIGSTOP)
        os._exit(0)
    os.wait()
    os.close(hears)
    _kept.append(tells)
    os.close(_kept.pop())  # type: ignore[call-overload]


def _trace(stage: Stage) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            pid = int((stage.folder / f"traced-{stage.number}").read_text())
            if _LIBC.ptrace(_SEIZE, pid, None, None) == 0:
                return
        time.sleep(0.01)


def _number(stage: Stage) -> tuple[list[int], list[int]]:
    stage.path()
    stage.number = random.getrandbits(40)
    return [], []


@kind("a debugger has it", before=_number, partner=_trace)
def _traced(stage: Stage) -> None:
    (stage.folder / f"traced-{stage.number}").write_text(str(os.getpid()))
    deadline = time.monotonic() + 60
    while "TracerPid:\t0" in Path("/proc/self/status").read_text() and time.monotonic() < deadline:
        time.sleep(0.01)


@kind("it lives in another network", roots=True)
def _network(_: Stage) -> None:
    _LIBC.unshare(_CLONE_NEWNET)


@kind("it has other mounts", roots=True)
def _mounts(_: Stage) -> None:
    _LIBC.unshare(_CLONE_NEWNS)


@kind("it has another root", roots=True)
def _root(stage: Stage) -> None:
    os.chroot(stage.code)


@kind("it may not be looked into")
def _closed(_: Stage) -> None:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    if os.geteuid() == 0:
        _kept.append(socket.create_server(("127.0.0.1", 0)))


def _session(stage: Stage, *, answers: bool) -> None:
    folder = stage.folder / f"session_2026-11-22_10-00-00_000000_{os.getpid()}"
    (folder / "sockets").mkdir(parents=True)
    (folder / "logs").mkdir()
    raylet = socket.socket(socket.AF_UNIX)
    raylet.bind(str(folder / "sockets" / "raylet"))
    _kept.append((folder / "logs" / "worker.log").open("w"))
    if answers and os.fork() == 0:
        raylet.listen()
        _kept[-1].close()  # type: ignore[attr-defined]
        engines.call("somebody")
        engines.wait()
    raylet.close()
    time.sleep(0.05 if answers else 0)


@kind("a worker of a Ray that answers", title="ray::WorkerDict", runs=("ray",))
def _live_session(stage: Stage) -> None:
    hears, tells = os.pipe()
    if os.fork() == 0:
        os.close(hears)
        folder = stage.folder / "session_2026-11-22_10-00-00_000000_1"
        (folder / "sockets").mkdir(parents=True, exist_ok=True)
        path = folder / "sockets" / f"raylet.{os.getpid()}"
        raylet = socket.socket(socket.AF_UNIX)
        raylet.bind(str(path))
        raylet.listen()
        engines.call("tini")
        if os.fork():
            os._exit(0)
        os.close(tells)
        engines.wait()
    os.close(tells)
    os.read(hears, 1)
    os.close(hears)
    os.wait()
    _kept.append((stage.folder / "session_2026-11-22_10-00-00_000000_1" / "worker.log").open("w"))


plain("a worker of a Ray that is not known", title="ray::WorkerDict", runs=("ray",))


# --- What a first look at descriptors and at the first thread does not show.
@kind("an alarm that it waits for without a handler")
def _blocked_alarm(_: Stage) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    signal.alarm(3600)


@kind("it is told of changes in a folder by a signal of its choice")
def _notified_otherwise(stage: Stage) -> None:
    signal.signal(signal.SIGRTMIN + 1, lambda *_: None)
    folder = os.open(stage.folder, os.O_RDONLY)
    fcntl.fcntl(folder, _SET_SIGNAL, signal.SIGRTMIN + 1)
    fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_CREATE)
    _kept.append(folder)


@kind("it waits at a message queue of POSIX")
def _posix_queue(_: Stage) -> None:
    queue = ctypes.CDLL(None).mq_open(f"/q{os.getpid()}".encode(), os.O_RDONLY | os.O_CREAT, 0o600, None)
    if queue < 0:
        raise NotHereError
    _waits_in_a_thread(lambda: select.select([queue], [], []))


@kind("it waits at a semaphore with a name")
def _named_semaphore(_: Stage) -> None:
    library = ctypes.CDLL(None)
    library.sem_open.restype = ctypes.c_void_p
    semaphore = library.sem_open(f"/s{os.getpid()}".encode(), os.O_CREAT, 0o600, 0)
    _waits_in_a_thread(lambda: library.sem_wait(ctypes.c_void_p(semaphore)))


@kind("a listener in a message to itself")
def _listener_in_message(_: Stage) -> None:
    server, (sends, receives) = socket.create_server(("127.0.0.1", 0)), socket.socketpair()
    socket.send_fds(sends, [b"x"], [server.fileno()])
    server.close()
    _kept.extend((sends, receives))


def _ring() -> tuple[int, tuple[int, ...]]:
    """Return an io_uring, and where its fields are."""
    parameters = ctypes.create_string_buffer(120)
    ring = _LIBC.syscall(_IO_URING_SETUP, 8, parameters)
    if ring < 0:
        raise NotHereError
    return ring, struct.unpack_from("10I", parameters.raw, 40)


def _registered(ring: int, descriptor: int) -> None:
    """Put a file into a ring and close its descriptor."""
    assert _LIBC.syscall(_IO_URING_REGISTER, ring, 2, (ctypes.c_int * 1)(descriptor), 1) == 0
    os.close(descriptor)


@kind("a listener that only an io_uring has")
def _listener_in_ring(_: Stage) -> None:
    ring = _ring()[0]
    _registered(ring, socket.create_server(("127.0.0.1", 0)).detach())
    _kept.append(ring)


@kind("a listener that only an io_uring without a descriptor has")
def _listener_in_mapped_ring(_: Stage) -> None:
    ring = _ring()[0]
    _registered(ring, socket.create_server(("127.0.0.1", 0)).detach())
    _LIBC.mmap.restype = ctypes.c_void_p
    _LIBC.mmap(None, mmap.PAGESIZE, 3, mmap.MAP_SHARED, ring, ctypes.c_long(0))
    os.close(ring)


@kind(
    "the other end is held: a connection that only an io_uring has",
    before=_inherited(_unix(socket.SOCK_STREAM)),
    partner=nothing,
)
def _connection_in_ring(_: Stage) -> None:
    ring = _ring()[0]
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names alone
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                _registered(ring, int(name))
    _kept.append(ring)


def _submitted(request: bytes) -> None:
    """Give the kernel a request that goes on."""
    ring, fields = _ring()
    queue = mmap.mmap(ring, fields[6] + 32, mmap.MAP_SHARED)
    requests = mmap.mmap(ring, 512, mmap.MAP_SHARED, offset=0x10000000)
    requests[: len(request)] = request
    queue[fields[1] : fields[1] + 4] = struct.pack("I", 1)
    assert _LIBC.syscall(_IO_URING_ENTER, ring, 1, 0, 0, None, 0) == 1
    _kept.extend((ring, queue, requests))


@kind("a timer of an io_uring")
def _ring_timer(_: Stage) -> None:
    hour = ctypes.create_string_buffer(struct.pack("qq", 3600, 0))
    _kept.append(hour)
    _submitted(struct.pack("BBHiQQII", 11, 0, 0, -1, 0, ctypes.addressof(hour), 1, 0))


@kind("an io_uring accepts clients")
def _ring_accepts(_: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _submitted(struct.pack("BBHiQQII", 13, 0, 0, server.fileno(), 0, 0, 0, 0))


@kind("a request of io_submit waits for clients")
def _asynchronous(_: Stage) -> None:
    context = ctypes.c_ulong(0)
    if os.uname().machine != "x86_64" or _LIBC.syscall(206, 8, ctypes.byref(context)):
        raise NotHereError
    with socket.create_server(("127.0.0.1", 0)) as server:
        request = struct.pack("QIIHhIQQqQII", 1, 0, 0, 5, 0, server.fileno(), 1, 0, 0, 0, 0, 0)
        block = ctypes.create_string_buffer(request, 64)
        _kept.append(block)
        assert _LIBC.syscall(209, context, 1, (ctypes.c_void_p * 1)(ctypes.addressof(block))) == 1


def _number_of(stage: Stage, number: int) -> None:
    (stage.folder / f"traced-{stage.number}").write_text(str(number))
    time.sleep(0.3)


def _finds(hold: Callable[[int], int]) -> Act:
    """Return an act that holds the process whose number is found."""

    def here(stage: Stage) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                _kept.append(hold(int((stage.folder / f"traced-{stage.number}").read_text())))
                return
            time.sleep(0.01)

    return here


for _name, _hold in (
    ("waits for its end", os.pidfd_open),
    ("has its memory open", lambda pid: os.open(f"/proc/{pid}/mem", os.O_RDONLY)),
    ("has its folder of /proc open", lambda pid: os.open(f"/proc/{pid}", os.O_RDONLY)),
):
    kind(f"somebody {_name}", before=_number, partner=_finds(_hold))(
        lambda stage: _number_of(stage, os.getpid())
    )


@kind("a debugger has a thread of it", before=_number, partner=_trace)
def _traced_thread(stage: Stage) -> None:
    thread = threading.Thread(target=_LIBC.pause, daemon=True)
    thread.start()
    _number_of(stage, thread.native_id or 0)


def _elsewhere(ends: Callable[[], tuple[int, int]]) -> Callable[[Stage], tuple[list[int], list[int]]]:
    """Make both ends in another network."""

    def before(_: Stage) -> tuple[list[int], list[int]]:
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        assert _LIBC.unshare(_CLONE_NEWNET) == 0
        try:
            os.system("ip link set lo up 2>/dev/null")
            own, other = ends()
        finally:
            assert _LIBC.setns(here, _CLONE_NEWNET) == 0
            os.close(here)
        return [own], [other]

    return before


for _name, _ends in (("TCP", _tcp(serves=True)), ("a Unix stream", _unix(socket.SOCK_STREAM))):
    plain(f"the other end is held in another network: {_name}", before=_elsewhere(_ends), partner=nothing)


for _name, _flag in (("host name", 0x4000000), ("control groups", 0x2000000)):

    @kind(f"it has its own {_name}", roots=True)
    def _own_namespace(_: Stage, flag: int = _flag) -> None:
        _LIBC.unshare(flag)


@kind("it has its own time", roots=True)
def _own_time(_: Stage) -> None:
    _LIBC.unshare(_CLONE_NEWTIME)
    inner = os.open("/proc/self/ns/time_for_children", os.O_RDONLY)
    if _LIBC.setns(inner, _CLONE_NEWTIME):
        raise NotHereError
    os.close(inner)


# --- The dead.
plain("an engine", dies=True)
plain("a worker", title="VLLM::Worker_TP0", dies=True)
plain("a scheduler of SGLang", title="sglang::scheduler_TP1", runs=("sgl_kernel",), dies=True)


@kind("an engine with its worker", dies=True)
def _with_worker(_: Stage) -> None:
    if os.fork() == 0:
        engines.call("VLLM::Worker_TP0")
        engines.wait()


@kind("an agent of a dead Ray", title="ray::DashboardAgent", runs=("ray",), dies=True)
def _dead_session(stage: Stage) -> None:
    folder = stage.folder / f"session_2026-11-22_10-00-00_000000_{os.getpid()}"
    (folder / "sockets").mkdir(parents=True)
    raylet = socket.socket(socket.AF_UNIX)
    raylet.bind(str(folder / "sockets" / "raylet"))
    raylet.close()
    _kept.append((folder / "worker.log").open("w"))


def _widowed() -> int:
    here, there = _unix(socket.SOCK_STREAM)()
    os.close(there)
    return here


plain("one whose connection has nobody at the other end", before=lambda _: ([_widowed()], []), dies=True)


@kind("one with a pipe to itself", dies=True)
def _self_pipe(_: Stage) -> None:
    _kept.extend(os.pipe())
    _kept.extend(socket.socketpair())
    _kept.append(_LIBC.eventfd(0, 0))
    _kept.append(select.epoll())


@kind("one with an io_uring that has nothing to do", dies=True)
def _idle_ring(_: Stage) -> None:
    _kept.append(_ring()[0])


@kind("one that torch.distributed has brought together with itself", runs=("vllm", "torch"), dies=True)
def _torch(_: Stage) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    _kept.extend((server, client, server.accept()[0], socket.create_server(("127.0.0.1", 0))))


def fork(what: Callable[[], None], *, user: int | None = None) -> int:
    """A process that does it and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            if user is not None and user != os.geteuid():
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                engines.visible()
            what()
        except NotHereError:
            os._exit(77)
        except BaseException as error:  # noqa: BLE001 - it is printed, and the process ends
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    return pid


def plant(kind: Kind, stage: Stage) -> tuple[int, list[int]] | None:
    """Plant one: its number, and those of its companions. None if impossible."""
    kept_before = len(_kept)
    own, others = kind.before(stage)
    watched, sentinel = os.pipe()
    told, telling = os.pipe()
    friends: list[int] = []
    if kind.partner is not None:
        partner = kind.partner
        user = stage.user if kind.partners_user is None else kind.partners_user

        def live() -> None:
            partner(_with(stage, others[0] if others else stage.number))
            engines.call("client")
            engines.only([*others, *_descriptors()])
            engines.wait()

        friends.append(fork(live, user=user))

    def here() -> None:
        engines.load(stage.code, *kind.runs)
        engines.call(kind.title)
        engines.only([*own, telling, *([sentinel] if kind.lost or kind.driver else [])])
        if kind.here in _ENDLESS:
            _tell(telling)
        kind.here(stage)
        _tell(telling)
        engines.wait()

    def driver() -> None:
        child = fork(here)
        engines.only([watched, 2])
        if kind.driver:
            engines.call(kind.driver)
            engines.wait()
        os.waitpid(child, 0)  # only one that cannot be here ends

    starter = fork(driver, user=stage.user)
    for descriptor in {*own, *others, watched, sentinel, telling}:
        os.close(descriptor)
    while len(_kept) > kept_before:
        _kept.pop()
    with os.fdopen(told) as answer:
        number = answer.readline().strip()
    if not kind.driver:
        os.kill(starter, signal.SIGKILL)
        os.waitpid(starter, 0)
    else:
        friends.append(starter)
    if not number:
        for pid in friends:
            os.kill(pid, signal.SIGKILL)
        return None
    return int(number), friends


def _tell(telling: int) -> None:
    """Send this process's number, once."""
    with contextlib.suppress(OSError):
        os.write(telling, f"{os.getpid()}\n".encode())
        os.close(telling)


_ENDLESS = {_computes, _little, _polls, _appends, _reads}


def _with(stage: Stage, number: int) -> Stage:
    return Stage(stage.folder, stage.user, stage.code, number)


def _descriptors() -> list[int]:
    return [held for held in _kept if isinstance(held, int)]


def clean(user: int) -> dict[str, dict[str, str]] | None:
    """Return what verl-doctor keeps, and why, when it cleans up as this user; None if it crashes. "" is why it judges none."""
    hears, tells = os.pipe()

    def look() -> None:
        found = left_processes.collect(gpus=Unknown("none"), machine=Machine())
        if isinstance(found, Unknown):
            os.write(tells, json.dumps({"kept": {"": found.reason}}).encode())
            return
        assert isinstance(found, LeftProcesses), found
        outcomes = list(remove(found.found, Machine()))
        assert all(outcome.state == "removed" for outcome in outcomes), outcomes
        os.write(
            tells, json.dumps({"kept": {leftover.name: leftover.why for leftover in found.kept}}).encode()
        )

    pid = fork(look, user=user)
    os.close(tells)
    with os.fdopen(hears) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else None


def one_round(
    kinds: list[Kind], user: int, code: Path, count: Counter[str], *, hides: str = ""
) -> Iterator[str]:
    """Plant these, clean up, and yield what went wrong. If /proc hides too much, all must be kept for this reason."""
    folder = Path(tempfile.mkdtemp(prefix="r"))
    folder.chmod(0o777)
    planted: list[tuple[Kind, int]] = []
    everybody: list[int] = []
    for kind in kinds:
        stage = Stage(folder, user, code)
        number = plant(kind, stage)
        if number is None:
            count["not here"] += 1
            count[f"not here: {kind.name}"] += 1
            continue
        planted.append((kind, number[0]))
        everybody += [number[0], *number[1]]
    time.sleep(0.1)
    for one, pid in planted:
        if not is_running(pid):
            yield f"did not come to life: {one.name}"
    said = clean(user)
    if said is None:
        yield "the doctor broke"
        said = {"kept": {}}
    for one, pid in planted:
        count["living" if not one.dies else "unsure" if hides else "dead"] += 1
        if (
            one.dies
            and hides
            and not any(
                hides in why for name, why in said["kept"].items() if not name or f"(process {pid})" in name
            )
        ):
            yield f"kept for another reason: {one.name}"
        if (one.dies and not hides) == is_running(pid):
            why = {name: why for name, why in said["kept"].items() if f"(process {pid})" in name}
            yield f"{'left' if one.dies and not hides else 'lost'}: {one.name} {why}"
    friends = set(everybody) - {pid for _, pid in planted}
    yield from (
        f"lost: process {pid}, to which one of them was tied" for pid in friends if not is_running(pid)
    )
    count["kept"] += len(said["kept"])
    if os.environ.get("SHOW"):
        names = {pid: one.name for one, pid in planted}
        for name, why in said["kept"].items():
            print(names.get(int(name.rpartition(" ")[2].rstrip(")")), name), "->", why, file=sys.stderr)
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        if pid != os.getpid():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    shutil.rmtree(folder, ignore_errors=True)


def main(seed: int, rounds: int, user: int, proc: str) -> None:
    """Print what went wrong in this many rounds."""
    orphans.YOUNG = -1.0
    process_activity.WINDOW = 0.3
    os.umask(0)
    engines.as_first_namespace(proc)
    os.system("ip link set lo up 2>/dev/null")
    # Segments, semaphores and queues end with the namespaces.
    assert _LIBC.unshare(_CLONE_NEWIPC) == 0
    assert os.system("mount -t tmpfs none /dev/shm -o mode=1777") == 0
    code = engines.code(Path(tempfile.mkdtemp(prefix="c"), "code"))
    code.parent.chmod(0o755)
    dice, count, wrong = random.Random(seed), Counter[str](), []
    started = time.monotonic()
    kinds = [kind for kind in KINDS if user == 0 or not kind.roots]
    hides = "/proc/stat" if "subset" in proc else "/proc hides" if user and "hidepid" in proc else ""
    for turn in range(max(rounds, 1)):
        chosen = kinds if not rounds else dice.sample(kinds, dice.randint(4, 14))
        wrong += [f"round {turn}: {problem}" for problem in one_round(chosen, user, code, count, hides=hides)]
    shutil.rmtree(code.parent)
    living = sum(not kind.dies for kind in kinds) - sum(name.startswith("not here:") for name in count)
    print(
        json.dumps(
            {
                "seed": seed,
                "user": user,
                "kinds": living,
                "rounds": max(rounds, 1),
                "wrong": wrong[:50],
                "count": count,
                "seconds": round(time.monotonic() - started),
            }
        )
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), sys.argv[4])
