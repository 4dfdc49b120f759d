"""Judges whether a candidate file is a leftover, from the signs of life that it shows.

A file is a leftover if every possible sign of life was checked and none was found. A file that could not be
checked is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verl_doctor.toolkit.collectors.leftovers.files import LeftFile, LeftFiles
from verl_doctor.toolkit.leftover import Kept, Leftover, RemovePath, Store
from verl_doctor.toolkit.text import counted

GRACE = 60.0
"""Seconds to leave a file alone after its last change: a starting job creates files before opening them."""

_EXPECTED = {
    "session folder": "folder",
    "spill folder": "folder",
    "temporary folder": "folder",
    "shared memory": "file",
    "socket": "socket",
    "address file": "file",
}


def judged(left_file: LeftFile, among: LeftFiles, *, grace: float = GRACE) -> Leftover | Kept:
    """Return a leftover with its proof, or why it is kept. `grace` is in seconds."""
    store: Store = "shared memory" if left_file.kind == "shared memory" else "disk"
    why = next(_reasons(left_file, among, grace), "")
    if why:
        return Kept(left_file.kind, left_file.path, why, left_file.size, store)
    removal = RemovePath(left_file.path, left_file.device, left_file.inode, left_file.changed)
    return Leftover(
        left_file.kind,
        left_file.path,
        tuple(_proof(left_file, among)),
        removal,
        left_file.size,
        store,
        among.now - left_file.latest,
    )


def _reasons(left_file: LeftFile, among: LeftFiles, grace: float) -> Iterator[str]:
    """Yield the reasons to keep it, the clearest first."""
    if not left_file.mine:
        yield f"it belongs to another user (number {left_file.owner})"
    if left_file.type != _EXPECTED[left_file.kind]:
        yield f"it is a {left_file.type}, but a job would create a {_EXPECTED[left_file.kind]}"
    if left_file.uses:
        yield _and_more(left_file.uses)
    if left_file.used:
        unseen = ", although no visible process uses it" if among.processes else ""
        yield f"{_within(left_file.used)} is in use{unseen}"
    if left_file.answer == "connected":
        yield f"{left_file.address}, which it names, answers"
    if left_file.maker == "runs":
        yield f"process {left_file.pid}, which its name contains, runs"
    if left_file.maker == "hidden":
        yield f"process {left_file.pid}, which its name contains, runs, but /proc hides it"
    yield from _unseen(left_file, among)
    if left_file.foreign:
        yield f"{_within(left_file.foreign)} belongs to another user"
    if left_file.mounted:
        yield f"{_within(left_file.mounted)} is a mount"
    if left_file.written:
        yield (
            f"{_within(left_file.written)} was written by the job; save or remove it, then the rest can be "
            "removed"
        )
    if left_file.latest > among.now + 1:
        yield "its last change is in the future, so its age is unknown"
    if left_file.latest > among.now - grace:
        yield (
            f"it was changed {_ago(max(among.now - left_file.latest, 0))} ago, and a job may just be starting"
        )


def _unseen(left_file: LeftFile, among: LeftFiles) -> Iterator[str]:
    """Yield what prevents a proof."""
    if left_file.closed:
        yield f"{_within(left_file.closed)} cannot be read"
    if left_file.undetermined:
        yield f"the kernel does not report whether {_within(left_file.undetermined)} is in use"
    if left_file.seen == "this machine":
        yield (
            f"it is on {left_file.lies_on or 'an unknown file system'}, so processes of other machines may "
            "use it"
        )
    if left_file.seen == "this user" and left_file.kind != "socket":
        yield "/proc hides other users' processes, so it is unknown whether they use it"
    if left_file.seen == "this namespace" and left_file.kind != "socket":
        yield "other containers or the host may share this folder, and their processes are not visible here"
    if left_file.answer == "silence":
        yield f"{left_file.address}, which it names, neither responds nor refuses"
    if left_file.kind == "address file" and not left_file.address:
        yield "it contains no valid address"
    if left_file.kind in {"spill folder", "temporary folder"} and not left_file.pid and not left_file.node:
        yield "its name does not show its owner"
    if left_file.type == "folder" or left_file.kind == "shared memory":
        if among.closed:
            yield f"{_and_more(among.closed)}, so it is unknown whether they use it"
        yield from among.in_flight[:1]
    if left_file.node and among.nodeless:
        yield f"its node may be that of {among.nodeless[0]}"


def _proof(left_file: LeftFile, among: LeftFiles) -> Iterator[str]:
    if used := " or ".join(_uses(left_file)):
        yield f"the kernel counts no process, in any container, that {used}"
    yield "no process works in it or names it" if left_file.type == "folder" else "no process names it"
    if left_file.maker == "ended":
        yield f"process {left_file.pid}, which its name contains, has ended"
    if left_file.maker == "started later":
        yield f"the process that has the number {left_file.pid} now started after its last change"
    if left_file.answer == "refused":
        yield f"{left_file.address}, which it names, refuses connections"
    yield f"it was last changed {_ago(among.now - left_file.latest)} ago"


def _uses(left_file: LeftFile) -> Iterator[str]:
    """Yield what the kernel reports about its use."""
    is_folder = left_file.type == "folder"
    if left_file.files:
        yield f"has {'anything in it' if is_folder else 'it'} open or mapped"
    if left_file.sockets:
        yield f"is bound to {'its ' + counted(left_file.sockets, 'socket') if is_folder else 'it'}"


def _and_more(processes: Sequence[str]) -> str:
    """Return the first processes, and how many more there are."""
    more = len(processes) - 1
    return f"{processes[0]}, and {counted(more, 'more process', 'more processes')}" if more else processes[0]


def _within(entry: str) -> str:
    """Return how to refer to an entry; the file or folder itself is "it"."""
    inner = entry.partition("/")[2]
    return inner or "it"


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return counted(int(seconds // size), unit)
    return counted(int(seconds), "second")
