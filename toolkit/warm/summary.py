"""The summary of a warm-up on one machine: a few numbers, which nodes send, and sentences about them.

The nodes are those of a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from verl_doctor.toolkit.text import counted, in_bytes, in_time
from verl_doctor.toolkit.warm.files import LeftOut
from verl_doctor.toolkit.warm.reading import PAGE
from verl_doctor.toolkit.warm.warm import Mount, Warmed

_MOST_LISTED = 20  # files with trouble

Verdict = Literal["ok", "failures", "could_not_check"]


@dataclass(frozen=True)
class Summary:
    """The files of one machine and their bytes in its page cache.

    `wanted` is how much of `size` should be resident, `before` and `resident` how much of that was and is
    (None if the kernel does not report it), `read` what was loaded. `whole_files` counts those requested from
    beginning to end, and `cut_at` is the first that is not. `room` and `limit` are bytes for the page cache:
    what memory leaves, and what the user allows. `done` is False if nothing was to be read. `lost` was
    resident and has been evicted.
    """

    files: int
    size: int
    wanted: int
    before: int | None = None
    resident: int | None = None
    read: int = 0
    lost: int = 0
    seconds: float = 0.0
    done: bool = False
    ended: str = ""
    whole_files: int = 0
    cut_at: str = ""
    room: int | None = None
    room_limit: str = ""
    limit: int | None = None
    mounts: tuple[Mount, ...] = ()
    troubles: tuple[LeftOut, ...] = ()
    more_troubles: int = 0

    @property
    def verdict(self) -> Verdict:
        """Whether everything named is resident, up to the user's limit."""
        wanted = self.size if self.limit is None else min(self.size, self.limit)
        if self.ended or self.troubles or wanted - self.wanted >= PAGE:
            return "failures"
        if self.resident is None:
            return "could_not_check"
        return "ok" if self.resident >= self.wanted else "failures"

    @property
    def missing(self) -> int:
        """The requested bytes that are not resident, as far as known."""
        return self.wanted - (self.resident or 0)

    @property
    def speed(self) -> float:
        """Bytes per second."""
        return self.read / self.seconds if self.seconds else 0.0


def summary(warmed: Warmed) -> Summary:
    """Add up the files."""
    plan = warmed.plan
    troubles = [*plan.left_out, *(LeftOut(row.file.path, row.trouble) for row in plan.rows if row.trouble)]
    before = [row.before for row in plan.rows if row.wanted]
    cut = [row for row in plan.rows if row.wanted < row.data]
    return Summary(
        files=len(plan.rows),
        size=plan.size,
        wanted=plan.wanted,
        before=None if None in before else sum(size or 0 for size in before),
        resident=warmed.resident,
        read=warmed.read,
        lost=sum(row.lost for row in plan.rows),
        seconds=round(warmed.seconds, 3),
        done=warmed.done,
        ended=warmed.ended,
        whole_files=len(plan.rows) - len(cut),
        cut_at=cut[0].file.path if cut else "",
        room=plan.room.size,
        room_limit=plan.room.limit,
        limit=plan.limit,
        mounts=plan.mounts,
        troubles=tuple(troubles[:_MOST_LISTED]),
        more_troubles=max(0, len(troubles) - _MOST_LISTED),
    )


def headline(summary: Summary) -> tuple[str, str]:
    """Return the verdict as a word and a sentence."""
    if not summary.files:
        if summary.troubles:
            return "PART", "no file could be read"
        return "NOTHING", "none of the files has any content"
    if not summary.done:
        return _planned(summary)
    weights = f"{in_bytes(summary.wanted)} in {counted(summary.files, 'file')}"
    read = f"{in_bytes(summary.read)} read in {_seconds(summary.seconds)}"
    if summary.read:
        read += f" ({in_bytes(summary.speed)}/s)"
    if summary.resident is None:
        return "UNKNOWN", f"{weights}: {read}; this kernel does not report what is resident"
    if summary.verdict == "ok":
        return (
            "WARM",
            f"{weights} are resident: {read}" if summary.read else f"{weights} were resident already",
        )
    return "PART", f"{in_bytes(summary.resident)} of {in_bytes(summary.size)} are resident: {read}"


def _planned(summary: Summary) -> tuple[str, str]:
    if summary.resident is None:
        return "UNKNOWN", (
            f"{in_bytes(summary.wanted)} in {counted(summary.files, 'file')} would be read; this kernel "
            "does not report what is resident"
        )
    text = (
        f"{in_bytes(summary.resident)} of {in_bytes(summary.size)} in {counted(summary.files, 'file')} are "
        "resident"
    )
    if summary.missing:
        return "COLD", f"{text}; {in_bytes(summary.missing)} would be read"
    unread = len(summary.troubles) + summary.more_troubles
    left = f"; {counted(unread, 'other file')} cannot be read" if unread else ""
    return "WARM" if summary.verdict == "ok" else "PART", text + left


def remarks(summary: Summary) -> Iterator[str]:
    """Yield why not everything is resident, and where the files are."""
    if summary.ended:
        yield f"{summary.ended}: run the same command again to continue"
    if summary.wanted < summary.size and summary.cut_at:
        yield _cut(summary)
    if summary.lost:
        yield (
            f"{in_bytes(summary.lost)} were read and evicted from memory again: something else needs "
            "the room, or reads more files than fit"
        )
    for trouble in summary.troubles:
        yield f"{trouble.path}: {trouble.reason}"
    if summary.more_troubles:
        yield f"and {counted(summary.more_troubles, 'more file')} with such trouble"
    if summary.mounts and all(mount.in_memory for mount in summary.mounts):
        yield "the files are in memory already: there is nothing to warm"


def _cut(summary: Summary) -> str:
    own = summary.limit is not None and (summary.room is None or summary.limit <= summary.room)
    why = (
        "--limit allows no more" if own else f"the {summary.room_limit} leaves {in_bytes(summary.room or 0)}"
    )
    verb = "are" if summary.done else "would be"
    return (
        f"{why}: {in_bytes(summary.wanted)} of {in_bytes(summary.size)} {verb} warmed, up to "
        f"{PurePath(summary.cut_at).name}: {counted(summary.whole_files, 'file')} complete, those that "
        "a loader reads first"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else in_time(seconds)
