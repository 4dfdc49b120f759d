"""Which helpers of a job have lost it: a judgement over the table of processes and over what they hold in common.

A helper is started by a program of its job and ends with it. One is an orphan when the program that started it has ended,
and nothing that runs holds the other end of anything that it has open. What cannot be shown is kept, and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.fact_processes import role_of
from verl_doctor.toolkit.process_table import Row
from verl_doctor.toolkit.process_ties import Tie

_ROLES = ("engine", "ray worker", "ray agent")
# Children of multiprocessing and of torch's compiler, which call themselves nothing; and the one that keeps count of names.
_NAMELESS = re.compile(
    r"\S*python\S* (?:-\S+ )*-c from multiprocessing\.(?:spawn|forkserver|resource_tracker|semaphore_tracker) import .*"
    r"|\S*python\S* (?:-\S+ )*\S*/torch/_inductor/compile_worker/__main__\.py .*"
)
# What takes over who has lost its parent, beside the first process: it has asked for that (PR_SET_CHILD_SUBREAPER, prctl(2)),
# which /proc does not tell. Whatever else is a helper's parent has started it, whatever it calls itself.
_TAKES_OVER = re.compile(
    r"systemd|init|tini(?:-static)?|dumb-init|docker-init|catatonit|conmon|containerd-shim\S*|slurmstepd:?|s6-\S+|runsv\w*|sinit|appinit"
)
# A program of Python's or of Ray's: what reads the log or the terminal is none.
_STARTS_HELPERS = re.compile(
    r"(?:python|pypy|ray|vllm|sglang|verl|torchrun|accelerate|deepspeed)", re.IGNORECASE
)
# A server answers whoever asks next. SGLang's is what a person starts, and calls itself like its helpers (http_server.py).
_SERVES = re.compile(r"\S+::(?:APIServer|http_server|tokenizer_worker)\b.*|\S+::APIServer_.*")
_FIRST = 1
_ENDED = "ZX"
YOUNG = 60.0  # seconds; a job that starts is left alone


@dataclass(frozen=True)
class Around:
    """What else is asked about a helper that has lost its parent.

    `ties` are as `process_ties.ties_of` has them; `age` is in seconds; `session` says whether the Ray session of one of Ray's
    processes is alive, None when that cannot be told; `debugger` is the number of the process that traces it, or 0;
    `elsewhere` says that it runs in other namespaces than this program; `is_engine` says of a process without a title whether
    an engine's code is loaded in it.
    """

    ties: Callable[[Collection[int]], Mapping[int, Collection[Tie]]]
    age: Callable[[Row], float]
    session: Callable[[Row], bool | None]
    debugger: Callable[[Row], int]
    elsewhere: Callable[[Row], bool]
    is_engine: Callable[[Row], bool]


@dataclass(frozen=True)
class Orphans:
    """The helpers that nobody needs, each with what became of its parent, and those that are kept, each with why.

    Parents come before their children, and children of multiprocessing last: its tracker of names waits for all others, and
    then takes away what shared memory they have left.
    """

    left: tuple[tuple[Row, str], ...] = ()
    kept: tuple[tuple[Row, str], ...] = ()


def orphans(table: Iterable[Row], around: Around) -> Orphans:
    """Judge all helpers of this user. Those whose parent runs are not spoken of."""
    rows = {row.pid: row for row in table}
    sessions = {pid: around.session(rows[pid]) for pid in _adrift(rows) if is_of_ray(rows[pid])}
    adrift = _adrift(rows, {pid for pid, alive in sessions.items() if alive})
    if not adrift:
        return Orphans()
    ties = around.ties(adrift)
    _follow_parents(adrift, rows, ties)
    reasons = dict.fromkeys(
        (pid for pid in adrift if sessions.get(pid, False) is None), "to which Ray it belongs cannot be told"
    )
    reasons |= {pid: why for pid in adrift if (why := _reason(rows[pid], rows, adrift, around))}
    _keep_what_is_tied(adrift, reasons, rows, ties)
    _keep_what_is_nameless(adrift, reasons, rows, ties, around)
    left = sorted(
        set(adrift) - set(reasons), key=lambda pid: (is_nameless(rows[pid]), _depth(pid, rows), pid)
    )
    return Orphans(
        left=tuple((rows[pid], _fate_of_parent(rows[pid], rows, left)) for pid in left),
        kept=tuple(
            (rows[pid], why) for pid, why in sorted(reasons.items()) if _is_worth_a_word(rows[pid], around)
        ),
    )


def is_helper(row: Row) -> bool:
    """Whether a process is one of this user's that belongs to a job which started it."""
    return row.mine and row.state not in _ENDED and is_called_helper(row.command)


def is_called_helper(command: str) -> bool:
    """Whether a command line is that of a helper, and not of a server."""
    if _NAMELESS.fullmatch(command, 0, 4096):
        return True
    return role_of(command) in _ROLES and not _SERVES.fullmatch(command)


def is_nameless(row: Row) -> bool:
    """Whether it is a child of multiprocessing that tells nothing about its job."""
    return _NAMELESS.fullmatch(row.command, 0, 4096) is not None


def is_of_ray(row: Row) -> bool:
    """Whether it is a worker or an agent of Ray."""
    return role_of(row.command) in ("ray worker", "ray agent")


def _adrift(rows: Mapping[int, Row], alive: Collection[int] = ()) -> set[int]:
    """The helpers that were started by what has ended, or by another such helper; not those of Ray that are `alive`.

    A worker of Ray may have been started through another program: those of a Ray that runs must be among the `alive`.
    """
    helpers = {pid for pid, row in rows.items() if is_helper(row)} - {_FIRST}

    def is_lost(pid: int) -> bool:
        for _ in rows:  # a table that was read while numbers changed hands may have a circle in it
            if pid not in helpers or pid in alive:
                break
            pid = rows[pid].parent
        return pid not in alive and (pid == _FIRST or pid not in rows or _takes_over(rows[pid]))

    return {pid for pid in helpers if is_lost(pid)}


def _takes_over(row: Row) -> bool:
    return _TAKES_OVER.fullmatch(row.title.rpartition("/")[2]) is not None


def _may_start_helpers(row: Row) -> bool:
    program = row.title.rpartition("/")[2]
    return _STARTS_HELPERS.match(program) is not None or role_of(row.command) is not None


def _follow_parents(adrift: set[int], rows: Mapping[int, Row], ties: Mapping[int, Collection[Tie]]) -> None:
    """Leave out what has a pipe to its parent, as a child of multiprocessing has to the one that started it."""
    living = {
        pid
        for pid in adrift
        if rows[pid].parent in rows
        and rows[pid].parent not in adrift
        and any(tie.other == rows[pid].parent and not tie.standard for tie in ties[pid])
    }
    while living:
        adrift -= living
        living = {
            pid
            for pid in adrift
            if rows[pid].parent in rows
            and is_helper(rows[rows[pid].parent])
            and rows[pid].parent not in adrift
        }


def _reason(row: Row, rows: Mapping[int, Row], adrift: Collection[int], around: Around) -> str:
    """Why one of them is kept, whatever it is tied to."""
    if row.parent not in rows:
        return "its parent is not seen from here: it was started from outside of this container, or /proc hides it"
    if around.elsewhere(row):
        return "it runs in another container: look from in there"
    if around.age(row) < YOUNG:
        return "it started less than a minute ago"
    if debugger := around.debugger(row):
        return f"process {debugger} examines it with a debugger"
    children = (
        child
        for child in rows.values()
        if child.parent == row.pid and child.pid not in adrift and child.state not in _ENDED
    )
    for child in children:
        return f"its child {_named(child)} is none of a job's known helpers"
    return ""


def _keep_what_is_tied(
    adrift: Collection[int],
    reasons: dict[int, str],
    rows: Mapping[int, Row],
    ties: Mapping[int, Collection[Tie]],
) -> None:
    """Keep what can reach something that runs, and what can reach that: until nothing changes any more."""
    changed = True
    while changed:
        changed = False
        for pid in sorted(set(adrift) - set(reasons)):
            why = _held(pid, adrift, reasons, rows, ties)
            if why:
                reasons[pid] = why
                changed = True


def _held(
    pid: int,
    adrift: Collection[int],
    reasons: Mapping[int, str],
    rows: Mapping[int, Row],
    ties: Mapping[int, Collection[Tie]],
) -> str:
    for tie in sorted(ties[pid], key=lambda one: (one.other, one.by)):
        if tie.other not in adrift and not _only_listens(tie, rows):
            whose = (
                f"with {_named(rows[tie.other])}, which runs"
                if tie.other in rows
                else "whose other end is not seen from here"
            )
            return f"it has {tie.by} {whose}"
        if tie.other in reasons and not tie.standard:
            return f"it belongs together with process {tie.other}, which is kept"
    if rows[pid].parent in reasons:
        return f"its parent, process {rows[pid].parent}, is kept"
    kept = [child for child in reasons if rows[child].parent == pid]
    return f"its child, process {kept[0]}, is kept" if kept else ""


def _only_listens(tie: Tie, rows: Mapping[int, Row]) -> bool:
    """Whether at the other end is what writes the log or the terminal: tee, a shell, the runtime of a container."""
    if not tie.standard:
        return False
    return tie.other == 0 or (tie.other in rows and not _may_start_helpers(rows[tie.other]))


def _keep_what_is_nameless(
    adrift: Collection[int],
    reasons: dict[int, str],
    rows: Mapping[int, Row],
    ties: Mapping[int, Collection[Tie]],
    around: Around,
) -> None:
    """Keep children of multiprocessing that belong to no engine and to no worker of Ray: they may be anybody's."""
    left = set(adrift) - set(reasons)
    known = {pid for pid in left if not is_nameless(rows[pid]) or around.is_engine(rows[pid])}
    while True:
        more = {
            pid
            for pid in left - known
            if rows[pid].parent in known
            or any(tie.other in known and not tie.standard for tie in ties[pid])
            or any(tie.other == pid and not tie.standard for one in known for tie in ties[one])
        }
        if not more:
            break
        known |= more
    reasons |= dict.fromkeys(left - known, "nothing tells to which job it belonged")


def _is_worth_a_word(row: Row, around: Around) -> bool:
    return not is_nameless(row) or around.is_engine(row)


def _fate_of_parent(row: Row, rows: Mapping[int, Row], left: Collection[int]) -> str:
    parent = rows[row.parent]
    if parent.pid in left:
        return f"its parent, {_named(parent)}, is left over, too"
    return f"what started it has ended, and {_named(parent)} took it over"


def _depth(pid: int, rows: Mapping[int, Row]) -> int:
    """How many ancestors a process has."""
    depth = 0
    while pid in rows and rows[pid].parent != pid and depth < len(rows):
        depth, pid = depth + 1, rows[pid].parent
    return depth


def _named(row: Row) -> str:
    return f"{row.title.rpartition('/')[2] or 'a process'} (process {row.pid})"
