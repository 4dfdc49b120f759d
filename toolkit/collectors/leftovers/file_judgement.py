"""Whether a thing that looks like a leftover is one: a pure judgement over the signs of life that it shows.

One is a leftover when everything that could keep it alive was looked at, and nothing does. Whatever could not be seen keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verl_doctor.toolkit.collectors.leftovers.files import LeftFile, LeftFiles
from verl_doctor.toolkit.leftover import Kept, Leftover, RemovePath, Store
from verl_doctor.toolkit.text import counted

GRACE = 60.0
"""Seconds for which a thing is left alone after its last change: a job that starts makes a file before it opens it."""

_EXPECTED = {
    "session folder": "folder",
    "spill folder": "folder",
    "shared memory": "file",
    "socket": "socket",
    "address file": "file",
}


def judged(one: LeftFile, among: LeftFiles, *, grace: float = GRACE) -> Leftover | Kept:
    """A leftover with its proof, or why it is kept. `grace` is in seconds."""
    store: Store = "shared memory" if one.kind == "shared memory" else "disk"
    why = next(_reasons(one, among, grace), "")
    if why:
        return Kept(one.kind, one.path, why, one.size, store)
    removal = RemovePath(one.path, one.device, one.inode, one.changed)
    return Leftover(
        one.kind, one.path, tuple(_proof(one, among)), removal, one.size, store, among.now - one.latest
    )


def _reasons(one: LeftFile, among: LeftFiles, grace: float) -> Iterator[str]:
    """Why it is kept, the clearest first."""
    if not one.mine:
        yield f"it belongs to another user (number {one.owner})"
    if one.type != _EXPECTED[one.kind]:
        yield f"it is a {one.type}, where a job makes a {_EXPECTED[one.kind]}"
    if one.uses:
        yield _and_more(one.uses)
    if one.used:
        unseen = ", though no process is seen to use it" if among.processes else ""
        yield f"{_within(one.used)} is in use{unseen}"
    if one.answer == "connected":
        yield f"{one.address}, which it names, answers"
    if one.maker == "runs":
        yield f"process {one.pid}, which its name tells, runs"
    if one.maker == "hidden":
        yield f"process {one.pid}, which its name tells, runs, and /proc hides it"
    yield from _unseen(one, among)
    if one.foreign:
        yield f"{_within(one.foreign)} belongs to another user"
    if one.mounted:
        yield f"{_within(one.mounted)} is a mount"
    if one.written:
        yield f"{_within(one.written)} was put there by the job; save it or remove it, and the rest can go"
    if one.latest > among.now + 1:
        yield "its last change lies in the future, so its age is not known"
    if one.latest > among.now - grace:
        yield f"it was changed {_ago(max(among.now - one.latest, 0))} ago, and a job may just be starting"


def _unseen(one: LeftFile, among: LeftFiles) -> Iterator[str]:
    """What keeps it from being proven."""
    if one.closed:
        yield f"{_within(one.closed)} cannot be looked into"
    if one.untold:
        yield f"the kernel does not tell whether {_within(one.untold)} is in use"
    if one.seen == "this machine":
        yield f"it lies on {one.lies_on or 'an unknown file system'}, and processes of other machines may use it"
    if one.seen == "this namespace" and one.kind != "socket":
        yield "other containers or the host may share this folder, and their processes are not seen from here"
    if one.answer == "silence":
        yield f"{one.address}, which it names, neither answers nor refuses"
    if one.kind == "address file" and not one.address:
        yield "it holds no address that is understood"
    if one.kind == "spill folder" and not one.pid and not one.node:
        yield "its name does not tell whose it is"
    if one.type == "folder" or one.kind == "shared memory":
        if among.closed:
            yield f"{_and_more(among.closed)}, so whether they use it is not known"
        yield from among.in_flight[:1]
    if one.node and among.nodeless:
        yield f"its node may be that of {among.nodeless[0]}"


def _proof(one: LeftFile, among: LeftFiles) -> Iterator[str]:
    if used := " or ".join(_uses(one)):
        yield f"nobody, in any container, {used}: the kernel counts that"
    yield "no process works in it or names it" if one.type == "folder" else "no process names it"
    if one.maker == "ended":
        yield f"process {one.pid}, which its name tells, has ended"
    if one.maker == "started later":
        yield f"the process that has the number {one.pid} now started after its last change"
    if one.answer == "refused":
        yield f"{one.address}, which it names, refuses connections"
    yield f"it was changed last {_ago(among.now - one.latest)} ago"


def _uses(one: LeftFile) -> Iterator[str]:
    """What the kernel was asked about it."""
    is_folder = one.type == "folder"
    if one.files:
        yield f"has {'anything in it' if is_folder else 'it'} open or mapped"
    if one.sockets:
        yield f"is bound to {'its ' + counted(one.sockets, 'socket') if is_folder else 'it'}"


def _and_more(processes: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(processes) - 1
    return f"{processes[0]}, and {counted(more, 'more process', 'more processes')}" if more else processes[0]


def _within(entry: str) -> str:
    """An entry as it is spoken of; the thing itself is "it"."""
    inner = entry.partition("/")[2]
    return inner or "it"


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return counted(int(seconds // size), unit)
    return counted(int(seconds), "second")
