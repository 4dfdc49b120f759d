"""Which helpers of a job have lost it: a judgement over the table of processes and over what they hold in common.

A helper is started by a program of its job and ends with it. One is an orphan when it runs code of vLLM, SGLang or Ray, the program
that started it has ended, nothing that runs holds the other end of anything that it has open, and it shows no sign of life.
What cannot be shown is kept, and why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.processes.processes import role_of
from verl_doctor.toolkit.system.process_activity import Activity
from verl_doctor.toolkit.system.process_life import Sign
from verl_doctor.toolkit.system.process_table import Row
from verl_doctor.toolkit.system.process_ties import Tie

_ROLES = ("engine", "ray worker", "ray agent")
# Children of multiprocessing and of torch's compiler, which call themselves nothing; and the one that keeps count of names.
_NAMELESS = re.compile(
    r"\S*python\S* (?:-\S+ )*-c from multiprocessing\.(?:spawn|forkserver|resource_tracker|semaphore_tracker) import .*"
    r"|\S*python\S* (?:-\S+ )*\S*/torch/_inductor/compile_worker/__main__\.py .*"
)
# What takes over who has lost its parent, beside the first process: it has asked for that (PR_SET_CHILD_SUBREAPER, prctl(2)),
# which /proc does not tell. Whatever else is a helper's parent has started it, whatever it calls itself.
_TAKES_OVER = re.compile(
    r"systemd|init|tini(?:-static)?|dumb-init|docker-init|catatonit|conmon|containerd-shim\S*|slurmstepd:?|s6-svscan|runit|sinit|appinit"
)
# A program of Python's or of Ray's: what reads the log or the terminal is none.
_STARTS_HELPERS = re.compile(
    r"(?:python|pypy|ray|vllm|sglang|verl|torchrun|accelerate|deepspeed)", re.IGNORECASE
)
# A server answers whoever asks next. SGLang's is what a person starts, and calls itself like its helpers (http_server.py).
_SERVES = re.compile(r"\S+::(?:APIServer|http_server|tokenizer_worker)\b.*|\S+::APIServer_.*")
_FIRST = 1
_ENDED = "ZX"
HOUSEKEEPING = 0.02  # seconds of a processor in a window: what an idle engine of torch uses
YOUNG = 60.0  # seconds; a job that starts is left alone


@dataclass(frozen=True)
class Around:
    """What else is looked at of a helper that has lost its parent.

    `ties` are as `process_ties.ties_of` has them; `age` is in seconds; `session` says whether the Ray session of one of Ray's
    processes is alive, None when that cannot be told; `debugger` is the number of the process that traces it, or 0.
    `elsewhere` and `foreign` are why it counts as another container's, and as nobody's of vLLM, SGLang or Ray: "" when it does not.
    `abandoned` says that the kernel knows of an end of a pipe or connection of its own that has nobody at the other end.
    `life` are the signs of life that it shows by itself, `activity` those of a while in which all of them are watched together.
    `rendezvous` are those whose listeners only they themselves connect to, as torch.distributed has them.
    """

    ties: Callable[[Collection[int]], Mapping[int, Collection[Tie]]]
    age: Callable[[Row], float]
    session: Callable[[Row], bool | None]
    debugger: Callable[[Row], int]
    elsewhere: Callable[[Row], str]
    foreign: Callable[[Row], str]
    abandoned: Callable[[Row], bool]
    life: Callable[[Row], Collection[Sign]]
    activity: Callable[[Collection[int]], Mapping[int, Activity]]
    rendezvous: Callable[[Collection[int]], Collection[int]]


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
    foreign = {pid: around.foreign(rows[pid]) for pid in adrift}
    reasons = {pid: why for pid, why in foreign.items() if why and not is_nameless(rows[pid])}
    for pid in sorted(adrift - set(reasons)):
        if sessions.get(pid, False) is None:
            reasons[pid] = "to which Ray it belongs cannot be told"
        elif why := _reason(rows[pid], rows, adrift, around):
            reasons[pid] = why
    _keep_what_is_tied(adrift, reasons, rows, ties)
    _keep_what_is_nameless(adrift, reasons, rows, ties, {pid for pid, why in foreign.items() if not why})
    _keep_what_may_be_a_daemon(adrift, reasons, rows, ties, around)
    _keep_what_lives(adrift, reasons, rows, around)
    _keep_what_is_tied(adrift, reasons, rows, ties)
    left = sorted(
        set(adrift) - set(reasons), key=lambda pid: (is_nameless(rows[pid]), _depth(pid, rows), pid)
    )
    return Orphans(
        left=tuple((rows[pid], _fate_of_parent(rows[pid], rows, left)) for pid in left),
        kept=tuple(
            (rows[pid], why)
            for pid, why in sorted(reasons.items())
            if not is_nameless(rows[pid]) or not foreign[pid]
        ),
    )


def _keep_what_may_be_a_daemon(
    adrift: Collection[int],
    reasons: dict[int, str],
    rows: Mapping[int, Row],
    ties: Mapping[int, Collection[Tie]],
    around: Around,
) -> None:
    """Keep what may have been started without a job: nothing of it leads to anything that has ended.

    Ray's own are known by their dead session. What belongs together with one that has lost its job has lost it, too.
    """
    left = set(adrift) - set(reasons)
    lost = {pid for pid in left if is_of_ray(rows[pid]) or around.abandoned(rows[pid])}
    reasons |= dict.fromkeys(
        left - _connected(lost, left, rows, ties), "nothing shows that its job has ended"
    )


def _keep_what_lives(
    adrift: Collection[int], reasons: dict[int, str], rows: Mapping[int, Row], around: Around
) -> None:
    """Keep what shows life, by itself or while it is watched. What torch.distributed does without a job is none."""
    left = set(adrift) - set(reasons)
    inner = around.rendezvous(left)
    for pid in sorted(left):
        sign = next(
            (sign for sign in around.life(rows[pid]) if sign.family == "other" or pid not in inner), None
        )
        if sign is not None:
            reasons[pid] = f"it {sign.text}"
    watched = around.activity(left - set(reasons))
    for pid, activity in sorted(watched.items()):
        if why := _activity(activity, housekeeping=pid in inner):
            reasons[pid] = why


def _activity(activity: Activity, *, housekeeping: bool) -> str:
    """What an activity shows, "" for none. Threads of torch and ZeroMQ wake up now and then to look for others."""
    if activity.hidden:
        return "what it does may not be looked at"
    if activity.transfers:
        return "it was reading or writing while it was watched"
    if activity.threads:
        return "it started or ended threads while it was watched"
    if activity.processor > (HOUSEKEEPING if housekeeping else 0.0):
        return f"it used {activity.processor * 1000:.3g} ms of a processor while it was watched"
    return ""


def _connected(
    known: Collection[int],
    among: Collection[int],
    rows: Mapping[int, Row],
    ties: Mapping[int, Collection[Tie]],
) -> set[int]:
    """These, and those `among` others that belong together with them: children, and whom a pipe or connection leads to."""
    found = set(known)
    while True:
        more = {
            pid
            for pid in set(among) - found
            if rows[pid].parent in found
            or any(tie.other in found and not tie.standard for tie in ties[pid])
            or any(tie.other == pid and not tie.standard for member in found for tie in ties[member])
        }
        if not more:
            return found
        found |= more


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
    if where := around.elsewhere(row):
        return where
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
    for tie in sorted(ties[pid], key=lambda tie: (tie.other, tie.by)):
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
    proven: Collection[int],
) -> None:
    """Keep children of multiprocessing that belong to no engine and to no worker of Ray: they may be anybody's."""
    left = set(adrift) - set(reasons)
    known = _connected(left & set(proven), left, rows, ties)
    reasons |= dict.fromkeys(left - known, "nothing tells to which job it belonged")


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
