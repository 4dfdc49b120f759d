"""Remove files and folders that dead jobs left, and nothing else.

Each is judged again, moved aside within its folder to a random name, judged once more, and only then removed:
a process that opened it before the move is detected, and a later one does not find it. Everything goes
through open folders, follows no link and stays on its mount.

Each step is one rename. A doctor that is killed leaves an item intact under its own name, intact under the
first of the two random names, which `give_back` reverts, or already condemned under the second one, where the
next doctor finds the rest.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from verl_doctor.toolkit.collectors.leftovers.contents import contents_of
from verl_doctor.toolkit.collectors.leftovers.file_judgement import GRACE, judged
from verl_doctor.toolkit.collectors.leftovers.files import LeftFile, LeftFiles, look
from verl_doctor.toolkit.collectors.leftovers.places import BEING_REMOVED, DOOMED, Place, place_at
from verl_doctor.toolkit.leftover import Kept, Leftover, Outcome, RemovePath
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.errors import os_error_text
from verl_doctor.toolkit.system.open_folder import reached
from verl_doctor.toolkit.system.safe_remove import erase, rename
from verl_doctor.toolkit.text import counted

_LONGEST_NAME = 255
_FOLDERS = frozenset({"session folder", "spill folder", "temporary folder"})
# How many items share one scan of all processes, which takes half a second on a busy node.
_FOLDERS_TOGETHER, _FILES_TOGETHER = 10, 100
_LATEST = "session_latest"


class _Stays(Exception):  # noqa: N818 - it is an answer, not a defect
    """Why an item is not removed. It is unchanged, and in its place unless the message states otherwise."""


@dataclass(frozen=True)
class _Moved:
    """An item that was moved aside: its origin, what was seen there, and where it is now."""

    place: Place
    seen: LeftFile
    aside: Place


def remove(leftovers: Iterable[Leftover], machine: Machine) -> Iterator[Outcome]:
    """Remove each if it is the same item that was judged and is still a leftover. Raises no OSError."""
    for is_folder, same in groupby(leftovers, key=lambda leftover: leftover.kind in _FOLDERS):
        waiting, many = list(same), _FOLDERS_TOGETHER if is_folder else _FILES_TOGETHER
        for first in range(0, len(waiting), many):
            yield from _together(waiting[first : first + many], machine)


def give_back(kept: Iterable[Kept], machine: Machine) -> None:
    """Restore the names of items that a killed doctor had moved aside and that are not leftovers."""
    for kept_entry in kept:
        place = place_at(kept_entry.name)
        if place is not None and place.put_aside:
            with contextlib.suppress(OSError), reached(str(machine.root), place.folder) as folder:
                if os.stat(place.entry, dir_fd=folder, follow_symlinks=False).st_uid == os.geteuid():
                    rename(place.entry, place.name, folder)


def _together(leftovers: Sequence[Leftover], machine: Machine) -> list[Outcome]:
    """Remove a batch, with one scan of all processes before the first move and one after the last."""
    now = look([place for moved_entry in leftovers if (place := place_at(moved_entry.name))], machine)
    moved: dict[int, _Moved] = {}
    outcomes: dict[int, Outcome] = {}
    try:
        for index, leftover in enumerate(leftovers):
            with _recording_failure(leftover, index, outcomes):
                moved[index] = _move_aside(leftover, now, machine)
        aside = look([moved_entry.aside for moved_entry in moved.values()], machine)
        for index in list(moved):
            with _recording_failure(leftovers[index], index, outcomes):
                left = _remove_moved(moved.pop(index), aside, machine)
                outcomes[index] = Outcome(leftovers[index], "partly removed" if left else "removed", left)
    finally:
        for moved_entry in moved.values():  # only after an interruption
            with contextlib.suppress(OSError, _Stays):
                _put_back(moved_entry, machine)
    return [outcomes[index] for index in sorted(outcomes)]


@contextlib.contextmanager
def _recording_failure(leftover: Leftover, index: int, outcomes: dict[int, Outcome]) -> Iterator[None]:
    """Turn an error that prevents a removal into an outcome."""
    try:
        yield
    except _Stays as stays:
        outcomes[index] = Outcome(leftover, "kept", str(stays))
    except OSError as error:
        outcomes[index] = Outcome(leftover, "not removed", os_error_text(error))


def _move_aside(leftover: Leftover, now: LeftFiles, machine: Machine) -> _Moved:
    """Judge it again, then move it."""
    removal, place = leftover.removal, place_at(leftover.name)
    seen = _found(leftover.name, now)
    if not isinstance(removal, RemovePath) or place is None:
        raise _Stays("its name is not that of a leftover")
    if (seen.device, seen.inode) != (removal.device, removal.inode):
        raise _Stays("something else is there now")
    if seen.changed != removal.changed:
        raise _Stays("it has changed since it was examined")
    _demand_proof(seen, now, GRACE)
    aside = f"{BEING_REMOVED}{secrets.token_hex(8)}-{place.name}"
    if len(aside) > _LONGEST_NAME:
        raise _Stays("its name is too long")
    moved = _Moved(place, seen, replace(place, entry=aside))
    with reached(str(machine.root), place.folder) as folder:
        _demand_unused(place.entry, seen, folder)
        rename(place.entry, aside, folder)
        try:
            _demand_unused(aside, seen, folder)
        except BaseException as error:
            _put_back(moved, machine, error)
            raise
    return moved


def _remove_moved(moved: _Moved, now: LeftFiles, machine: Machine) -> str:
    """Judge it in its present place, and remove it.

    Returns what could not be removed, "" if everything was.
    """
    with reached(str(machine.root), moved.place.folder) as folder:
        try:
            found = _found(moved.aside.path, now)
            _demand_proof(_as_before(found, moved.seen), now, 0.0)
            about = _demand_same(moved.aside.entry, moved.seen, folder)
        except BaseException as error:
            _put_back(moved, machine, error)
            raise
        doomed = DOOMED + moved.aside.entry.removeprefix(BEING_REMOVED)
        rename(moved.aside.entry, doomed, folder)
        if moved.place.kind == "session folder":
            _erase_link_to(moved.place.name, folder)
        failed = erase(doomed, folder, about)
        if not failed:
            return ""
    more = f" and {counted(len(failed) - 1, 'more entry', 'more entries')}" if len(failed) > 1 else ""
    return f"{failed[0]}{more} could not be removed; the rest is at {replace(moved.aside, entry=doomed).path}"


def _found(path: str, now: LeftFiles) -> LeftFile:
    for file in now.files:
        if file.path == path:
            return file
    raise _Stays("it no longer exists")


def _demand_proof(seen: LeftFile, among: LeftFiles, grace: float) -> None:
    verdict = judged(seen, among, grace=grace)
    if isinstance(verdict, Kept):
        raise _Stays(verdict.why)


def _demand_same(name: str, seen: LeftFile, folder: int) -> os.stat_result:
    """Check that it is the same item that was examined."""
    about = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if (about.st_dev, about.st_ino) != (seen.device, seen.inode):
        raise _Stays("something else was put there")
    return about


def _demand_unused(name: str, seen: LeftFile, folder: int) -> None:
    """Check that it is the same item and that, according to the kernel, nothing in it is in use now."""
    _demand_same(name, seen, folder)
    contents = contents_of(name, folder)
    if contents.used:
        raise _Stays(f"{contents.used.partition('/')[2] or 'it'} has just come into use")


def _as_before(moved: LeftFile, seen: LeftFile) -> LeftFile:
    """Return what was examined, without the change caused by moving it."""
    maker = seen.maker if seen.maker == "started later" else moved.maker
    return replace(moved, latest=seen.latest, maker=maker)


def _put_back(moved: _Moved, machine: Machine, cause: BaseException | None = None) -> None:
    """Restore its name. Raises _Stays if the name has been taken meanwhile, and OSError."""
    with reached(str(machine.root), moved.place.folder) as folder:
        try:
            rename(moved.aside.entry, moved.place.entry, folder)
        except FileNotFoundError:
            return
        except OSError as error:
            where = (
                f"it is now at {moved.aside.path}, because its name could not be restored: {error.strerror}"
            )
            raise _Stays(f"{cause}; {where}") from error


def _erase_link_to(session: str, folder: int) -> None:
    """Remove Ray's link to its last session if it points to this one.

    A starting Ray creates its own, under the same name.
    """
    with contextlib.suppress(OSError):
        for entry in os.listdir(folder):
            if entry.startswith(BEING_REMOVED) and entry.endswith(f"-{_LATEST}"):
                _give_back_link(entry, folder)  # another doctor was killed here
        if _leads_to(_LATEST, folder) != session:
            return
        aside = f"{BEING_REMOVED}{secrets.token_hex(8)}-{_LATEST}"
        rename(_LATEST, aside, folder)
        if _leads_to(aside, folder) == session:
            os.unlink(aside, dir_fd=folder)
        else:
            rename(aside, _LATEST, folder)


def _give_back_link(aside: str, folder: int) -> None:
    _leads_to(aside, folder)  # raises OSError if it does not belong to this user
    try:
        rename(aside, _LATEST, folder)
    except FileExistsError:
        os.unlink(aside, dir_fd=folder)


def _leads_to(link: str, folder: int) -> str:
    """Return the name of the target of this user's link. Raises OSError if it is not such a link."""
    owner = os.stat(link, dir_fd=folder, follow_symlinks=False).st_uid
    return Path(os.readlink(link, dir_fd=folder)).name if owner == os.geteuid() else ""
