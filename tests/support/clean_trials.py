"""A randomised clean-up: a machine with files of live and dead jobs, and a comparison of its state before and after."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from support.left_behind import dead_socket, leftovers, machine_in, session, show
from verl_doctor.toolkit.commands.clean import path as clean_path
from verl_doctor.toolkit.machine import Machine

Totals = Counter[str]
Content = Mapping[str, str]

_KEEPER = """
import json, mmap, os, socket, sys, time
kept = []
for line in sys.stdin:
    do, path, delay = json.loads(line)
    said = "done"
    try:
        if do == "open":
            time.sleep(delay)
            kept.append(open(path, "rb"))
        elif do == "map":
            with open(path, "rb") as file:
                kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        elif do == "listen":
            os.chdir(os.path.dirname(path))
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(os.path.basename(path))
            listener.listen()
            kept.append(listener)
            os.chdir("/")
        elif do == "serve":
            server = socket.create_server(("127.0.0.1", 0))
            kept.append(server)
            said = str(server.getsockname()[1])
        elif do == "work":
            os.chdir(path)
        elif do == "forget":
            os.chdir("/")
            while kept:
                kept.pop().close()
    except FileNotFoundError:
        said = "gone"
    print(said, flush=True)
"""


class Keeper:
    """A process that opens files, maps them, listens on them or works in them, on request."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _KEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def begin(self, do: str, path: Path | str = "", delay: float = 0.0) -> None:
        """Send it a request without waiting for the result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([do, str(path), delay]) + "\n")
        self._process.stdin.flush()

    def end(self) -> str:
        """Return its response."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def do(self, do: str, path: Path | str = "") -> str:
        """Send it a request, and wait for the result."""
        self.begin(do, path)
        return self.end()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def keepers(number: int) -> Iterator[list[Keeper]]:
    """Some of them, while this lasts."""
    running = [Keeper() for _ in range(number)]
    try:
        yield running
    finally:
        for child in running:
            child.stop()


@dataclass
class Thing:
    """A planted file or folder. `lives`: it must still exist, unchanged. `coming` is the process that may start to use it, and how."""

    path: Path
    lives: bool
    what: str
    before: Content = field(default_factory=dict)
    coming: Keeper | None = None


@dataclass
class Stage:
    """The folder in which a trial plants its files."""

    machine: Machine
    dice: random.Random
    keepers: list[Keeper]
    precious: Path
    named: list[str] = field(default_factory=list)
    waiting: list[Keeper] = field(default_factory=list)
    number: int = 0

    def unused(self) -> int:
        """Return a number that no process has."""
        self.number += 1
        return 4_100_000 + self.number

    def keeper(self) -> Keeper:
        """Return a keeper that has no later task."""
        return self.dice.choice([keeper for keeper in self.keepers if keeper not in self.waiting])

    def claimed(self) -> Keeper | None:
        """Return a keeper not used otherwise in this trial; None if too few are left."""
        free = [keeper for keeper in self.keepers if keeper not in self.waiting]
        if len(free) < 2:
            return None
        self.waiting.append(free[0])
        return free[0]

    def hexadecimal(self, digits: int) -> str:
        """Some digits of a name."""
        return f"{self.dice.getrandbits(4 * digits):0{digits}x}"


# What cannot be proven at one moment is kept: other processes of this machine come and go while they are looked at, and the
# more the busier it is.
_PASSES = 20


def trial(root: Path, dice: random.Random, team: list[Keeper], totals: Totals) -> Iterator[str]:
    """Plant files, clean up and compare. Yield what went wrong."""
    machine = machine_in(root)
    machine = replace(machine, environ={"RAY_object_spilling_directory": "/spill"})
    precious = root / "home"
    precious.mkdir()
    for number in range(3):
        (precious / f"model-{number}").write_text(f"weights {number}")
    stage = Stage(machine, dice, team, precious)
    for user in team:
        show(machine, user.pid)
    things = [dice.choice(_MAKERS)(stage) for _ in range(dice.randint(3, 9))]
    things.append(Thing(precious, lives=True, what="precious"))
    with _naming(stage):
        for thing in things:
            thing.before = content(thing.path)
        for thing in things:
            if thing.coming:
                inner = next((path for path in sorted(thing.path.rglob("*")) if path.is_file()), thing.path)
                thing.coming.begin("open", inner, dice.random() * 0.04)
        _clean(machine, [thing for thing in things if not thing.lives and not thing.coming], totals)
        came = {id(thing): thing.coming.end() == "done" for thing in things if thing.coming}
        # Who came while its thing was moved aside found nothing, and the thing may have been kept at that moment.
        _clean(machine, [thing for thing in things if not thing.lives and not came.get(id(thing))], totals)
        for thing in things:
            totals["comers in time"] += came.get(id(thing), False)
            totals["living" if thing.lives or came.get(id(thing)) else "dead"] += 1
            yield from _compared(thing, came=came.get(id(thing), False))
        yield from (f"left {path}" for path in root.rglob(".verl-doctor-removes-*"))
    for user in team:
        user.do("forget")


def _clean(machine: Machine, dead: Sequence[Thing], totals: Totals) -> None:
    """Clean up once, and again while any leftover of a dead job remains."""
    for number in range(_PASSES):
        outcomes = list(clean_path.remove(leftovers(machine).found, machine))
        totals["removed"] += sum(outcome.state == "removed" for outcome in outcomes)
        totals["kept at the last moment"] += sum(outcome.state == "kept" for outcome in outcomes)
        if not any(os.path.lexists(thing.path) for thing in dead):
            return
        time.sleep(0.01 * number)


def content(path: Path) -> Content:
    """Everything below a path: types, and contents of files and links."""
    if not path.is_dir() or path.is_symlink():
        return {"": _content(path)}
    return {str(entry.relative_to(path)): _content(entry) for entry in path.rglob("*")}


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"link {path.readlink()}"
    if path.is_file():
        return f"file {path.read_bytes().decode('latin-1')}"
    return "folder" if path.is_dir() else "socket" if path.is_socket() else "nothing"


def _compared(thing: Thing, *, came: bool) -> Iterator[str]:
    now = content(thing.path)
    if thing.lives or came:
        if now != thing.before:
            yield f"{'lost' if thing.lives else 'torn'} {thing.what}: {thing.path} is {now}, was {thing.before}"
    elif thing.path.is_symlink() or thing.path.exists():
        yield f"left {thing.what}: {thing.path}"


@contextlib.contextmanager
def _naming(stage: Stage) -> Iterator[None]:
    """A process with some of these names in its command line or environment."""
    half = len(stage.named) // 2
    environ = {f"NAMED_{number}": name for number, name in enumerate(stage.named[half:])}
    with subprocess.Popen(
        ["sh", "-c", "sleep 600 & wait", *stage.named[:half]],
        env={**environ, "PATH": os.defpath},
        start_new_session=True,
    ) as process:
        show(stage.machine, process.pid)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _session(stage: Stage) -> Thing:
    ways: list[Callable[[Stage, Path], bool | Keeper]] = [
        _dead, _dead, _opened, _mapped, _listened, _worked_in, _named, _with_a_link, _with_two_names, _with_a_checkpoint, _come_to,
    ]  # fmt: skip
    way = stage.dice.choice([*ways, _made])
    if way is _made:
        folder = session(stage.machine, stage.keeper().pid, ray=f"/tmp/own-{stage.unused()}/ray")
        return Thing(folder, lives=True, what="session of a living maker")
    folder = session(stage.machine, stage.unused(), ray=_rays(stage))
    return _thing(stage, folder, way)


def _rays(stage: Stage) -> str:
    return stage.dice.choice(["/tmp/ray", f"/tmp/own-{stage.unused()}/ray"])


def _trainers(stage: Stage) -> Thing:
    folder = stage.machine.at(f"/tmp/verl_ray_{stage.unused()}")
    session(stage.machine, stage.unused(), ray=f"/tmp/{folder.name}/ray")
    return _thing(stage, folder, stage.dice.choice([_dead, _opened, _named, _come_to]))


def _spilled(stage: Stage) -> Thing:
    way = stage.dice.choice([_dead, _opened, _worked_in, _named, _with_a_link, _come_to, _made, _nameless])
    number = {_made: str(stage.keeper().pid), _nameless: f"of-job{stage.hexadecimal(6)}x"}.get(
        way, str(stage.unused())
    )
    folder = stage.machine.at(f"/tmp/verl_spill_{stage.hexadecimal(4)}_{number}")
    _objects(folder if way is _nameless else folder / f"ray_spilled_objects_{stage.hexadecimal(56)}", stage)
    return _thing(stage, folder, way)


def _of_a_node(stage: Stage) -> Thing:
    folder = stage.machine.at(f"/spill/ray_spilled_objects_{stage.hexadecimal(56)}")
    _objects(folder, stage)
    return _thing(stage, folder, stage.dice.choice([_dead, _opened, _named, _come_to]))


def _objects(folder: Path, stage: Stage) -> None:
    folder.mkdir(parents=True)
    for number in range(stage.dice.randint(1, 5)):
        (folder / f"{stage.hexadecimal(32)}-multi-{number}").write_text("x" * stage.dice.randint(1, 5000))


def _segment(stage: Stage) -> Thing:
    eight = stage.hexadecimal(8)
    names = (
        f"psm_{eight}",
        f"sem.mp-{eight}",
        f"nccl-{eight[:6]}",
        f"verl_weights_{eight}",
        f"torch_{stage.unused()}_{eight}_0",
    )
    path = stage.machine.at("/dev/shm") / stage.dice.choice(names)
    path.write_text("x" * stage.dice.randint(1, 5000))
    return _thing(
        stage, path, stage.dice.choice([_dead, _dead, _opened, _mapped, _with_two_names, _named, _come_to])
    )


def _socket(stage: Stage) -> Thing:
    name = stage.dice.choice(
        [f"rl-colocate-zmq-{stage.unused()}-replica-0-rank-0.sock", f"verl_vllm_zmq_{stage.unused()}_me.ipc"]
    )
    path = stage.machine.at("/tmp") / name
    if stage.dice.random() < 0.5:
        stage.keeper().do("listen", path)
        return Thing(path, lives=True, what="socket at which somebody listens")
    return Thing(dead_socket(path), lives=False, what="socket")


def _address(stage: Stage) -> Thing:
    folder = stage.machine.at(f"/tmp/own-{stage.unused()}/ray")
    folder.mkdir(parents=True)
    path = folder / "ray_current_cluster"
    lives = stage.dice.random() < 0.5
    path.write_text(f"127.0.0.1:{stage.keeper().do('serve') if lives else _silent().getsockname()[1]}")
    return Thing(path, lives=lives, what="address file")


@cache
def _silent() -> socket.socket:
    """A bound port without a listener, so that no other process gets it."""
    silent = socket.socket()
    silent.bind(("127.0.0.1", 0))
    return silent


def _planted(stage: Stage) -> Thing:
    """A link with the name of a leftover, to something precious."""
    ray = stage.machine.at("/tmp/ray")
    ray.mkdir(exist_ok=True)
    names = (
        ray / f"session_2026-01-01_00-00-00_000000_{stage.unused()}",
        ray.parent / f"verl_spill_{stage.unused()}",
    )
    path = stage.dice.choice(names)
    path.symlink_to(stage.precious)
    return Thing(path, lives=True, what="planted link")


def _innocent(stage: Stage) -> Thing:
    name = stage.dice.choice(
        ["checkpoints", "session_notes", "verl-cache", "psm_", "ray_spilled", "\x1b[31m\nname"]
    )
    folder = stage.machine.at(stage.dice.choice(["/tmp", "/dev/shm", "/tmp/ray"]))
    path = folder / f"{name}{stage.unused()}"
    path.mkdir(parents=True)
    (path / "file").write_text("mine")
    return Thing(path, lives=True, what="something with another name")


_MAKERS = [
    _session,
    _session,
    _trainers,
    _spilled,
    _spilled,
    _of_a_node,
    _segment,
    _segment,
    _socket,
    _address,
    _planted,
    _innocent,
]


def _thing(stage: Stage, path: Path, way: Callable[[Stage, Path], bool | Keeper]) -> Thing:
    lives = way(stage, path)
    what = f"{path.name.partition('_')[0]} {way.__name__.strip('_').replace('_', ' ')}"
    if isinstance(lives, Keeper):
        return Thing(path, lives=False, what=what, coming=lives)
    return Thing(path, lives=lives, what=what)


def _file_in(path: Path, stage: Stage) -> Path:
    files = [entry for entry in sorted(path.rglob("*")) if entry.is_file() and entry.stat().st_size]
    return stage.dice.choice(files) if files else path


def _dead(stage: Stage, path: Path) -> bool:
    return False


def _made(stage: Stage, path: Path) -> bool:
    return True


def _nameless(stage: Stage, path: Path) -> bool:
    return True


def _opened(stage: Stage, path: Path) -> bool:
    stage.keeper().do("open", _file_in(path, stage))
    return True


def _mapped(stage: Stage, path: Path) -> bool:
    stage.keeper().do("map", _file_in(path, stage))
    return True


def _listened(stage: Stage, path: Path) -> bool:
    stage.keeper().do("listen", path / "sockets" / "plasma_store")
    return True


def _worked_in(stage: Stage, path: Path) -> bool:
    one = stage.claimed()  # it can work in one place alone, and a socket's path would lead it away
    if one:
        one.do("work", path)
    return one is not None


def _named(stage: Stage, path: Path) -> bool:
    stage.named.append(f"/somewhere/{path.name}/inside")
    return True


def _with_a_link(stage: Stage, path: Path) -> bool:
    folder = next(entry for entry in sorted(path.iterdir()) if entry.is_dir())
    (folder / "link").symlink_to(stage.precious)
    return False


def _with_two_names(stage: Stage, path: Path) -> bool:
    other = stage.precious / f"saved-{stage.unused()}"
    other.hardlink_to(_file_in(path, stage))
    return False


def _with_a_checkpoint(stage: Stage, path: Path) -> bool:
    (path / "checkpoints").mkdir()
    (path / "checkpoints" / "actor.pt").write_text("weights")
    return True


def _come_to(stage: Stage, path: Path) -> bool | Keeper:
    return stage.claimed() or False
