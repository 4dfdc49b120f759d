"""A clean-up that is killed at any of its system calls leaves nothing half removed, and the next one ends its work."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash import tracing
from crash.tracing import Act
from support.kept import cannot_run
from support.left_behind import NOBODY, dead_socket, leftovers, machine_in, session, two_minutes_later

from verl_doctor.toolkit.collectors.leftovers.places import BEING_REMOVED, DOOMED
from verl_doctor.toolkit.commands.clean import path as clean_path
from verl_doctor.toolkit.commands.clean.clean import Found, remove_all
from verl_doctor.toolkit.machine import Machine

pytestmark = pytest.mark.slow

_PASSES = 5
Things = dict[str, frozenset[str]]
_ASIDE = re.compile(rf"({re.escape(BEING_REMOVED)}|{re.escape(DOOMED)})[0-9a-f]{{16}}-(.+)")


@pytest.fixture
def where() -> Iterator[Path]:
    """A folder with a short path, in which the machine of each trial is made."""
    if why := tracing.why_not():
        cannot_run(why)
    with tempfile.TemporaryDirectory(prefix="vd-") as folder, two_minutes_later():
        yield Path(folder)


def build(root: Path) -> Machine:
    """What dead jobs left, and what a living one uses."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    machine = machine_in(root)
    dead = session(machine)
    (dead.parent / "session_latest").symlink_to(dead)
    session(machine, NOBODY + 1, ray="/tmp/living/ray")
    spilled = machine.at(f"/tmp/verl_spill_{NOBODY}/ray_spilled_objects_00112233445566778899aabb")
    spilled.mkdir(parents=True)
    (spilled / ("ab" * 16)).write_text("x" * 100)
    (machine.at("/dev/shm") / "psm_0123abcd").write_bytes(b"x")
    dead_socket(machine.at("/tmp") / "rl-colocate-zmq-1.sock")
    return machine


def things(machine: Machine) -> Things:
    """All there is with the name of a leftover, and what is in it."""
    folders = [machine.at(name) for name in ("/tmp", "/tmp/ray", "/tmp/living/ray", "/dev/shm")]
    named = [path for folder in folders if folder.is_dir() for path in folder.iterdir()]
    return {
        path.name: frozenset(
            str(entry.relative_to(path)) for entry in path.rglob("*") if not path.is_symlink()
        )
        for path in named
        if path.name not in ("ray", "living")
    }


def hold(machine: Machine) -> int:
    """Have a file of the living session open."""
    (file,) = machine.at("/tmp/living/ray").glob("session_*/logs/raylet.out")
    return os.open(file, os.O_RDONLY)


def test_killed_at_each_system_call(where: Path) -> None:
    machine = build(where / "m")
    living = machine.at("/tmp/living/ray").glob("session_*").__next__().name
    whole = things(machine)

    def job() -> None:
        list(clean_path.remove(leftovers(machine).found, machine))

    for _ in range(_PASSES):
        holder = hold(machine)
        calls = tracing.run(job).calls
        os.close(holder)
        if things(machine).keys() == {living}:
            break
        build(where / "m")
    assert things(machine).keys() == {living}
    assert len(calls) > 20
    halves = 0
    # Nothing changes between two calls: what a kill before a call leaves, one after the call in front of it has left already.
    for kill in (Act(0, "kill before"), *(Act(at, "kill after") for at in range(len(calls)))):
        point = f"{kill} ({calls[kill.at]})"
        for _ in range(_PASSES):
            build(where / "m")
            holder = hold(machine)
            if killed := tracing.run(job, [kill]).killed:
                break
            os.close(holder)
        assert killed, point
        halves += _is_explained(things(machine), whole, living, point)
        _finish(machine, where, lambda: things(machine) == {living: whole[living]})
        assert things(machine) == {living: whole[living]}, point
        os.close(holder)
    assert halves > 5


def _finish(machine: Machine, where: Path, is_done: Callable[[], bool]) -> None:
    """Clean up until all is gone: what other tests start and end may leave a thing in doubt, and it is kept then."""
    for number in range(_PASSES):
        remove_all(lambda: _found(machine), machine, where / f"journal-{number}", lambda _: None)
        if is_done():
            return
        time.sleep(0.2 * number)


def _is_explained(now: Things, whole: Things, living: str, point: str) -> bool:
    """Each thing is whole under its own name or the first aside, or decided. Whether one of them was under way."""
    assert now[living] == whole[living], point
    under_way = False
    for entry, inside in now.items():
        aside = _ASIDE.fullmatch(entry)
        if aside is None or aside[1] == BEING_REMOVED:
            assert inside == whole[aside[2] if aside else entry], f"{point}: {entry} is not whole"
        under_way |= aside is not None
    return under_way


def _found(machine: Machine) -> Found:
    seen = leftovers(machine)
    return Found(seen.found, seen.kept)


def test_folder_that_turns_out_to_be_in_use_gets_its_name_back(where: Path) -> None:
    """The job came to it before a doctor was killed."""
    machine = build(where / "m")
    (folder,) = machine.at("/tmp/living/ray").glob("session_*")
    folder.rename(folder.with_name(f"{BEING_REMOVED}0123456789abcdef-{folder.name}"))
    holder = hold_aside(machine)
    remove_all(lambda: _found(machine), machine, where / "journal", lambda _: None)
    os.close(holder)
    assert things(machine).keys() == {folder.name}


def hold_aside(machine: Machine) -> int:
    """Have a file of the living session open, which was moved aside."""
    (file,) = machine.at("/tmp/living/ray").glob(".verl-doctor-*/logs/raylet.out")
    return os.open(file, os.O_RDONLY)


def test_interrupted_removal_of_the_latest_link_is_completed(where: Path) -> None:
    machine = build(where / "m")
    link = machine.at("/tmp/ray/session_latest")
    link.rename(link.with_name(f"{BEING_REMOVED}0123456789abcdef-session_latest"))
    _finish(machine, where, lambda: not list(machine.at("/tmp/ray").iterdir()))
    assert list(machine.at("/tmp/ray").iterdir()) == []
