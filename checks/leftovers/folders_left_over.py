"""LEFT101: sessions and spilled objects of dead jobs occupy disk space."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.leftovers._left_files import GIB, file, held, named, parents, proven, severity
from verl_doctor.toolkit.collectors.host.folders import Folder, Folders
from verl_doctor.toolkit.collectors.leftovers.file_leftovers import FileLeftovers
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.leftover import Kept
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes

_WORTH_A_WORD = GIB  # a session that spilled nothing has only a few megabytes of logs
_ROOMY = Folders((Folder(use="Ray's sessions", path="/tmp/ray", size=1000 * GIB, free=900 * GIB),))
_FULL = Folders((Folder(use="Ray's sessions", path="/tmp/ray", size=1000 * GIB, free=20 * GIB),))
_SESSION = "/tmp/ray/session_2026-11-20_10-00-00_123456_4711"


def _examples() -> list[Example]:
    return [
        Example("nothing is left over", (FileLeftovers(), _ROOMY)),
        Example(
            "logs of a few sessions", (FileLeftovers((file("session folder", _SESSION, 5 << 20),) * 3), _FULL)
        ),
        Example(
            "a running session",
            (
                FileLeftovers(
                    kept=(Kept("session folder", _SESSION, "raylet (process 7) has it open", 90 * GIB),)
                ),
                _FULL,
            ),
        ),
        Example(
            "a session that spilled",
            (FileLeftovers((file("session folder", _SESSION, 4 * GIB),)), _ROOMY),
            "1 folder of dead jobs takes 4.0 GiB of disk",
        ),
        Example(
            "a disk that is nearly full",
            (
                FileLeftovers(
                    (
                        file("spill folder", "/tmp/verl_spill_4711", 300 * GIB),
                        file("session folder", _SESSION, GIB),
                    )
                ),
                _FULL,
            ),
            "2 folders of dead jobs take 301 GiB of disk",
        ),
    ]


@check("LEFT101", severity="warning", examples=_examples)
def folders_left_over(left: FileLeftovers, folders: Folders | Unknown) -> Iterator[Finding]:
    """Sessions and spilled objects of dead jobs occupy disk space.

    ## Why it matters

    Ray does not remove the session of a killed cluster, nor the objects spilled there. Each crash leaves
    more, until the disk is full and the next job stops with `Object creation will fail if spilling is
    required`.

    The finding lists only what is provably unused: no process in any container has anything in it open or is
    bound to its sockets.

    ## How to fix

    `verl-doctor clean` shows each with its proof; `verl-doctor clean --apply` removes them, each after a
    fresh check. This cannot be undone, and the logs of these jobs are removed with their sessions.
    """
    found = left.of("session folder", "spill folder")
    taken = held(found)
    if taken < _WORTH_A_WORD:
        return
    rooms = (
        []
        if isinstance(folders, Unknown)
        else [f.free for f in folders.of("Ray's sessions") if f.free is not None]
    )
    free = min(rooms, default=None)
    yield Finding(
        (
            f"{counted(len(found), 'folder')} of dead jobs take{'' if len(found) > 1 else 's'} "
            f"{in_bytes(taken)} of disk: {named(found)}"
        ),
        Evidence(
            found=f"{in_bytes(taken)}" + ("" if free is None else f", and {in_bytes(free)} free"),
            wanted="nothing",
            read_from=proven(found),
        ),
        subject=Subject("folder", parents(found)),
        remedy="run verl-doctor clean to see them all, and with --apply to remove them",
        severity=severity(taken, free),
    )
