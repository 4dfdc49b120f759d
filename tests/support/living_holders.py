# ruff: noqa: PLW0108
"""Plants many kinds of process that hold a file or folder with a leftover's name, and unused ones: what is removed?

    unshare --fork --pid --mount-proc --mount --net --kill-child python tests/support/living_holders.py SEED ROUNDS USERS PROC ROOM

USERS is "root", "weak" for root who may not inspect processes that may do more, "user" for an ordinary user beside whom root's
processes run, or "alone" for one who sees all processes. PROC are
options with which /proc is mounted, such as "hidepid=2", or "-" for none. With 0 rounds all kinds are planted together, once more
those beside which the unused must go, and each of the others alone, else a random part of them in each. Prints one JSON document.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support import engines
from verl_doctor.toolkit.collectors.leftovers import files
from verl_doctor.toolkit.collectors.leftovers.file_leftovers import judged_all
from verl_doctor.toolkit.collectors.leftovers.files import LeftFiles, left_files
from verl_doctor.toolkit.commands.clean.path import remove
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

NOBODY = 65534
UNUSED = 4_000_000  # numbers that no process has begin here
_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_FS, _CLONE_FILES, _CLONE_NEWNS, _CLONE_NEWPID = 0x200, 0x400, 0x20000, 0x20000000
_DETACH = 2
_IO_URING_SETUP, _IO_URING_REGISTER = 425, 427  # on all architectures
_kept: list[object] = []
Act = Callable[[Path], None]


@dataclass(frozen=True)
class Kind:
    """One kind of holder. `makes` is what it holds, `here` how; `user` is a number for one who is not the doctor's user.

    `blurs`: nothing shows what it holds, so that all folders and segments stay.
    """

    name: str
    here: Act | None
    makes: str = "session"
    roots: bool = False
    user: int | None = None
    blurs: bool = False


KINDS: list[Kind] = []


def kind(name: str, **fields: object) -> Callable[[Act], Act]:
    """Add a kind that holds as the function does."""

    def add(here: Act) -> Act:
        KINDS.append(Kind(name, here, **fields))  # type: ignore[arg-type]
        return here

    return add


def hold(path: Path, flags: int) -> int:
    """Keep it open."""
    one = os.open(path, flags)
    _kept.append(one)
    return one


def _inner(path: Path) -> Path:
    return (
        path / "logs" / "raylet.out"
        if path.is_dir() and (path / "logs").is_dir()
        else next(path.rglob("object"))
        if path.is_dir()
        else path
    )


def _folder(path: Path) -> Path:
    return _inner(path).parent if path.is_dir() else path


def _thread(what: Callable[[], None], own: int) -> None:
    """Run something in a thread with its own folders or descriptors."""
    ready = threading.Event()

    def run() -> None:
        assert _LIBC.unshare(own) == 0
        what()
        ready.set()
        time.sleep(3600)

    threading.Thread(target=run, daemon=True).start()
    ready.wait()


def _without_its_first_thread(what: Callable[[], None], path: Path) -> None:
    """Do something in a thread, and end the first one."""

    def run() -> None:
        what()
        time.sleep(0.05)
        _LIBC.pause()

    threading.Thread(target=run, daemon=True).start()
    time.sleep(0.05)
    _tell()
    _LIBC.syscall(60, 0)  # exit(2), of this thread alone


def _fly(path: Path, flags: int, *, accepted: bool = True) -> None:
    """Put a descriptor into a message that is never received."""
    one = os.open(path, flags)
    if accepted:
        sends, receives = socket.socketpair()
        _kept.extend((sends, receives))
    else:
        server, sends = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        server.bind("")
        server.listen()
        sends.connect(server.getsockname())
        _kept.append(server)
    socket.send_fds(sends, [b"x"], [one])
    os.close(one)
    if not accepted:
        sends.close()


def _elsewhere(path: Path, how: str) -> None:
    """Mount it in a namespace of one's own."""
    assert _LIBC.unshare(_CLONE_NEWNS) == 0
    place = Path(f"/mnt/{os.getpid()}")
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    if how == "bind":
        subprocess.run(["mount", "--bind", path, place], check=True)
    elif how == "overlay":
        subprocess.run(["mount", "-t", "overlay", "-o", f"lowerdir={path}:/mnt", "none", place], check=True)
    elif how == "link":
        place.with_suffix(".link").symlink_to(path)
        layers = f"lowerdir={place.with_suffix('.link')}:/mnt"
        subprocess.run(["mount", "-t", "overlay", "-o", layers, "none", place], check=True)
    elif how == "here":
        os.chdir(path)
        subprocess.run(["mount", "-t", "overlay", "-o", "lowerdir=.:/mnt", "none", place], check=True)
        os.chdir("/")
    elif how.startswith("nowhere"):
        subprocess.run(["mount", "-t", "overlay", "-o", f"lowerdir={path}:/mnt", "none", place], check=True)
        os.chdir(place) if how.endswith("cwd") else hold(place, os.O_PATH)
        assert _LIBC.umount2(os.fsencode(place), _DETACH) == 0
    elif how == "detached":
        subprocess.run(["mount", "--bind", path / "logs", place], check=True)
        os.chdir(place)
        assert _LIBC.umount2(os.fsencode(place), _DETACH) == 0


def _in_ring(path: Path) -> None:
    """Put it into an io_uring that is mapped and has no descriptor."""
    ring = _LIBC.syscall(_IO_URING_SETUP, 8, ctypes.create_string_buffer(120))
    opened = os.open(path, os.O_RDONLY)
    assert _LIBC.syscall(_IO_URING_REGISTER, ring, 2, (ctypes.c_int * 1)(opened), 1) == 0
    _LIBC.mmap.restype = ctypes.c_void_p
    _LIBC.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_SHARED, ring, ctypes.c_long(0))
    os.close(opened)
    os.close(ring)


_OPENING = {"read": os.O_RDONLY, "write": os.O_RDWR, "append": os.O_WRONLY | os.O_APPEND, "path": os.O_PATH}
for _makes in ("session", "spill", "segment"):
    for _way, _flags in _OPENING.items():
        kind(f"{_makes}: a file open to {_way}", makes=_makes)(
            lambda path, flags=_flags: hold(_inner(path), flags)
        )  # type: ignore[misc]

    @kind(f"{_makes}: mapped shared", makes=_makes)
    def _mapped(path: Path) -> None:
        with _inner(path).open("r+b") as file:
            _kept.append(mmap.mmap(file.fileno(), 0))

    @kind(f"{_makes}: mapped private", makes=_makes)
    def _mapped_private(path: Path) -> None:
        with _inner(path).open("rb") as file:
            _kept.append(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))

    kind(f"{_makes}: in the command line", makes=_makes)(lambda path: _run(path, argument=True))
    kind(f"{_makes}: in the environment", makes=_makes)(lambda path: _run(path, argument=False))
    kind(f"{_makes}: a descriptor of a file on its way", makes=_makes, blurs=True)(
        lambda path: _fly(_inner(path), os.O_RDONLY)
    )
    kind(f"{_makes}: a path of it on its way", makes=_makes, blurs=True)(
        lambda path: _fly(_inner(path), os.O_PATH)
    )
    kind(f"{_makes}: a thread has it open", makes=_makes)(
        lambda path: _thread(lambda: hold(_inner(path), os.O_PATH) and None, _CLONE_FILES)
    )
    kind(f"{_makes}: its first thread has ended, and it has it open", makes=_makes)(
        lambda path: _without_its_first_thread(lambda: hold(_inner(path), os.O_PATH) and None, path)
    )
    kind(f"{_makes}: a lock", makes=_makes)(
        lambda path: fcntl.flock(hold(_inner(path), os.O_RDONLY), fcntl.LOCK_SH)
    )
    kind(f"{_makes}: another user has a path of it", makes=_makes, user=0)(
        lambda path: hold(_inner(path), os.O_PATH) and None
    )
    kind(f"{_makes}: another user has it open", makes=_makes, user=0)(
        lambda path: hold(_inner(path), os.O_RDONLY) and None
    )

for _makes in ("session", "spill"):
    kind(f"{_makes}: works in it", makes=_makes)(lambda path: os.chdir(_folder(path)))
    kind(f"{_makes}: an open folder", makes=_makes)(lambda path: hold(_folder(path), os.O_RDONLY) and None)
    kind(f"{_makes}: a path of the folder", makes=_makes)(lambda path: hold(path, os.O_PATH) and None)
    kind(f"{_makes}: a thread works in it", makes=_makes)(
        lambda path: _thread(lambda: os.chdir(_folder(path)), _CLONE_FS)
    )
    kind(f"{_makes}: its first thread has ended, and it works in it", makes=_makes)(
        lambda path: _without_its_first_thread(lambda: os.chdir(_folder(path)), path)
    )
    kind(f"{_makes}: an open folder on its way", makes=_makes, blurs=True)(
        lambda path: _fly(_folder(path), os.O_RDONLY)
    )
    kind(f"{_makes}: an open folder on its way to who has not accepted", makes=_makes, blurs=True)(
        lambda path: _fly(_folder(path), os.O_RDONLY, accepted=False)
    )
    kind(f"{_makes}: watched", makes=_makes)(lambda path: _watch(_folder(path)))
    kind(f"{_makes}: has it as its root", makes=_makes, roots=True)(lambda path: os.chroot(path))
    kind(f"{_makes}: mounted elsewhere", makes=_makes, roots=True)(lambda path: _elsewhere(path, "bind"))
    kind(f"{_makes}: below an overlay", makes=_makes, roots=True)(lambda path: _elsewhere(path, "overlay"))
    kind(f"{_makes}: below an overlay that has another name for it", makes=_makes, roots=True)(
        lambda path: _elsewhere(_folder(path), "link")
    )
    kind(f"{_makes}: below an overlay that has no name for it", makes=_makes, roots=True, blurs=True)(
        lambda path: _elsewhere(_folder(path), "here")
    )
    kind(f"{_makes}: below an overlay that is mounted nowhere", makes=_makes, roots=True, blurs=True)(
        lambda path: _elsewhere(_folder(path), "nowhere")
    )
    kind(f"{_makes}: works in an overlay that is mounted nowhere", makes=_makes, roots=True, blurs=True)(
        lambda path: _elsewhere(_folder(path), "nowhere: cwd")
    )
    kind(f"{_makes}: a folder in an io_uring without a descriptor", makes=_makes, blurs=True)(
        lambda path: _in_ring(_folder(path))
    )
    kind(f"{_makes}: another user works in it", makes=_makes, user=0)(lambda path: os.chdir(path))
    kind(f"{_makes}: another user has the folder open", makes=_makes, user=0)(
        lambda path: hold(path, os.O_RDONLY) and None
    )
    kind(f"{_makes}: another user names it", makes=_makes, user=0)(lambda path: _run(path, argument=False))
kind("session: works in a mount of it that was taken away", roots=True)(
    lambda path: _elsewhere(path, "detached")
)
kind("session: a program of it runs")(lambda path: _run_program(path))
kind("session: listens at its socket")(
    lambda path: _listen(path / "sockets" / "plasma_store", socket.SOCK_STREAM)
)
kind("session: receives datagrams at its socket")(
    lambda path: _listen(path / "sockets" / "agent", socket.SOCK_DGRAM)
)
for _type in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    kind(f"socket: {_type.name}", makes="no socket")(lambda path, type_=_type: _listen(path, type_))  # type: ignore[misc]
    kind(f"socket: {_type.name} of another user", makes="no socket", user=0)(
        lambda path, type_=_type: _listen(path, type_)
    )  # type: ignore[misc]
kind("socket: bound, and not listening yet", makes="no socket")(
    lambda path: _listen(path, socket.SOCK_STREAM, listens=False)
)
kind("socket: in the command line of nobody's", makes="socket")(lambda path: _run(path, argument=True))
kind("spill: made by a process that runs", makes="made")(lambda _: None)
kind("session: a process in a namespace within works in it", roots=True)(lambda path: _within(path))
KINDS += [Kind(f"nobody: {makes}", None, makes) for makes in ("session", "spill", "segment", "socket")]


def _watch(path: Path) -> None:
    one = _LIBC.inotify_init1(0)
    assert _LIBC.inotify_add_watch(one, os.fsencode(path), 0x100) >= 0
    _kept.append(one)


def _run(path: Path, *, argument: bool) -> None:
    environ = {} if argument else {"PLACE": f"/elsewhere/{path.name}/x"}
    words = [f"/elsewhere/{path.name}/x"] if argument else []
    _tell(close=False)
    os.set_inheritable(_telling, False)
    os.execve("/bin/sh", ["sh", "-c", "sleep 3600 & wait", *words], {"PATH": os.defpath, **environ})


def _run_program(path: Path) -> None:
    shutil.copy("/bin/sleep", path / "logs" / "sleep")
    subprocess.Popen([path / "logs" / "sleep", "3600"], cwd="/", close_fds=True)
    time.sleep(0.05)


def _listen(path: Path, kind_of: socket.SocketKind, *, listens: bool = True) -> None:
    one = socket.socket(socket.AF_UNIX, kind_of)
    os.chdir(path.parent)
    one.bind(path.name)
    os.chdir("/")
    if listens and kind_of != socket.SOCK_DGRAM:
        one.listen()
    _kept.append(one)


def _within(path: Path) -> None:
    assert _LIBC.unshare(_CLONE_NEWPID) == 0
    if os.fork() == 0:
        os.chdir(path)
        engines.wait()
    time.sleep(0.02)


class Stage:
    """The folder in which a round plants its files."""

    def __init__(self, owner: int, dice: random.Random) -> None:
        self.owner, self.dice, self.number = owner, dice, 0

    def make(self, what: str) -> Path:
        """A file with the name of a leftover."""
        self.number += 1
        unused = UNUSED + self.number
        path = {
            "session": Path(f"/tmp/own{self.number}/ray/session_2026-11-21_18-00-00_123456_{unused}"),
            "spill": Path(f"/tmp/verl_spill_{unused}"),
            "made": Path("/tmp/verl_spill_0"),
            "segment": Path(f"/dev/shm/psm_{self.dice.getrandbits(32):08x}"),
            "socket": Path(f"/tmp/rl-colocate-zmq-{unused}.sock"),
            "no socket": Path(f"/tmp/rl-colocate-zmq-{unused}.sock"),
        }[what]
        if what == "session":
            for name in ("logs", "sockets"):
                (path / name).mkdir(parents=True)
            (path / "logs" / "raylet.out").write_text("started\n" * 100)
            _dead_socket(path / "sockets" / "raylet")
        elif what in ("spill", "made"):
            path.mkdir(exist_ok=True)
            if what == "spill":
                self.fill(path)
        elif what == "segment":
            path.write_bytes(bytes(mmap.PAGESIZE))
        elif what == "socket":
            _dead_socket(path)
        self.give(path)
        return path

    @staticmethod
    def fill(path: Path) -> None:
        """Put a spilled object into a folder."""
        node = path / "ray_spilled_objects_00112233445566778899aabb"
        node.mkdir()
        (node / "object").write_text("x" * 100)
        (node / "object").rename(node / ("ab" * 16))
        (node / ("ab" * 16)).rename(node / "object")

    def give(self, path: Path) -> None:
        """Make it the doctor's user's."""
        if path.exists() and os.geteuid() == 0 and self.owner:
            for entry in (path, *path.rglob("*")):
                os.chown(entry, self.owner, self.owner, follow_symlinks=False)


def _dead_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        os.chdir(path.parent)
        one.bind(path.name)
        os.chdir("/")


_telling = -1


def _tell(*, close: bool = True) -> None:
    global _telling  # noqa: PLW0603 - one for each process
    if _telling >= 0:
        os.write(_telling, b"x")
        if close:
            os.close(_telling)
            _telling = -1


def fork(what: Callable[[], None], user: int) -> int:
    """A process of a user that does it and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            if user != os.geteuid():
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
                engines.visible()
            what()
        except BaseException as error:  # noqa: BLE001 - it is printed, and the process ends
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    return pid


def start(one: Kind, path: Path, user: int) -> bool:
    """Have a process hold it; whether it does."""
    hears, tells = os.pipe()

    def live() -> None:
        global _telling  # noqa: PLW0603 - one for each process
        engines.only([tells, 2])
        os.chdir("/")
        _telling = tells
        engines.call("holder")
        assert one.here is not None
        one.here(path)
        _tell()
        engines.wait()

    pid = fork(live, user if one.user is None else one.user)
    os.close(tells)
    if one.makes == "made":
        path.rename(path.with_name(f"verl_spill_{pid}"))
        Stage.fill(path.with_name(f"verl_spill_{pid}"))
    with os.fdopen(hears, "rb") as answer:
        return answer.read(1) == b"x"


def content(path: Path) -> list[str]:
    """Return all that is in it."""
    return sorted(map(str, (path, *path.rglob("*")))) if os.path.lexists(path) else []


def clean(user: int, *, weak: bool = False) -> dict[str, str] | None:
    """Return for each file why it is kept, "" if it was removed; None if verl-doctor crashes."""
    hears, tells = os.pipe()

    def look() -> None:
        if weak:
            engines.without_ptrace()
        machine = Machine(environ={})
        seen = left_files.collect(machine, Unknown("none"), Unknown("none"))
        assert isinstance(seen, LeftFiles), seen
        found = judged_all(seen)
        outcomes = {outcome.leftover.name: outcome.why for outcome in remove(found.found, machine)}
        os.write(
            tells, json.dumps({leftover.name: leftover.why for leftover in found.kept} | outcomes).encode()
        )

    pid = fork(look, user)
    os.close(tells)
    with os.fdopen(hears) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else None


def one_round(kinds: list[Kind], users: str, dice: random.Random, count: Counter[str]) -> Iterator[str]:
    """Plant these, clean up, and yield what went wrong."""
    user = 0 if users in ("root", "weak") else NOBODY
    stage = Stage(user, dice)
    planted: list[tuple[Kind, Path]] = []
    for kind in kinds:
        path = stage.make(kind.makes)
        if kind.here is not None and not start(kind, path, user):
            yield f"did not come to life: {kind.name}"
        if kind.makes == "made":
            path = next(Path("/tmp").glob("verl_spill_[1-9]*"), path)
            path = min(Path("/tmp").glob("verl_spill_*"), key=lambda other: len(other.name))
        stage.give(path)
        planted.append((kind, path))
    time.sleep(0.2)
    before = {path: content(path) for _, path in planted}
    said = clean(user, weak=users == "weak")
    if said is None:
        yield "the doctor broke"
        said = {}
    blurred = any(one.blurs for one, _ in planted)
    foreign = users == "user" and any(one.user is not None for one, _ in planted)
    for one, path in planted:
        if one.here is not None:
            count["living"] += 1
            if content(path) != before[path]:
                yield f"lost: {one.name}"
            continue
        # What may be open in a process that the doctor may not look into stays, whoever it is. The first process may hold nothing.
        unsure = one.makes != "socket" and (users == "weak" or foreign or blurred)
        count["unsure" if unsure else "dead"] += 1
        if bool(content(path)) != unsure:
            yield f"{'left' if content(path) else 'removed'}: {one.name}: {said.get(str(path))}"
    if os.environ.get("SHOW"):
        for one, path in planted:
            print(one.name, "->", said.get(str(path)), file=sys.stderr)
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            with contextlib.suppress(OSError):
                os.kill(int(path.name), signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    for folder in ("/tmp", "/dev/shm"):
        for path in Path(folder).iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def main(seed: int, rounds: int, users: str, proc: str) -> None:
    """Print what went wrong in this many rounds."""
    for folder in ("/tmp", "/dev/shm", "/mnt"):
        subprocess.run(["mount", "-t", "tmpfs", "none", folder, "-o", "mode=1777"], check=True)
    os.umask(0)
    engines.as_first_namespace(proc)
    clock = time.time
    files.time.time = lambda: clock() + 120  # type: ignore[attr-defined]  # what was just made is old
    if users == "alone":
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        engines.visible()
    dice, count, wrong = random.Random(seed), Counter[str](), []
    started = time.monotonic()
    kinds = [
        kind
        for kind in KINDS
        if not (users in ("user", "alone") and kind.roots)
        and not (users == "alone" and kind.user is not None)
        and not (users == "weak" and "hidepid=4" in proc and kind.makes == "socket" and kind.here is not None)
    ]
    quiet = [kind for kind in kinds if not kind.blurs]
    plans = [kinds, quiet] if not rounds else []
    if not rounds:
        unused = next(kind for kind in KINDS if kind.here is None)
        plans += [[kind, unused] for kind in kinds if kind.blurs]
    for _ in range(rounds):
        among = dice.choice((kinds, quiet))
        plans.append(dice.sample(among, dice.randint(5, 15)))
    for turn, chosen in enumerate(plans):
        wrong += [f"round {turn}: {problem}" for problem in one_round(chosen, users, dice, count)]
    living = sum(kind.here is not None for kind in kinds)
    print(
        json.dumps(
            {
                "seed": seed,
                "users": users,
                "kinds": living,
                "rounds": len(plans),
                "wrong": wrong[:50],
                "count": count,
                "seconds": round(time.monotonic() - started),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5])
