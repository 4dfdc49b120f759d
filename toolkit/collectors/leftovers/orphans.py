"""Finds helper processes whose job has ended, from the table of processes and what they share.

A helper is started by a program of its job and ends with it. It is an orphan if it runs code of vLLM, SGLang
or Ray, its parent program has ended, no running process holds the other end of anything that it has open, and
it shows no sign of life. Anything unproven is kept, with the reason.
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
# Children of multiprocessing and of torch's compiler, which set no title, and multiprocessing's resource
# tracker.
_NAMELESS = re.compile(
    r"\S*python\S* (?:-\S+ )*-c from multiprocessing\.(?:spawn|forkserver|resource_tracker"
    r"|semaphore_tracker) import .*|\S*python\S* "
    r"(?:-\S+ )*\S*/torch/_inductor/compile_worker/__main__\.py .*"
)
# Processes other than the first that adopt orphans: they have requested it (PR_SET_CHILD_SUBREAPER,
# prctl(2)), which /proc does not show. Any other parent of a helper has started it, whatever its title.
_TAKES_OVER = re.compile(
    r"systemd|init|tini(?:-static)?|dumb-init|docker-init|catatonit|conmon|containerd-shim\S*"
    r"|slurmstepd:?|s6-svscan|runit|sinit|appinit"
)
# A program of Python or Ray; a reader of the log or the terminal is neither.
_STARTS_HELPERS = re.compile(
    r"(?:python|pypy|ray|vllm|sglang|verl|torchrun|accelerate|deepspeed)", re.IGNORECASE
)
# Servers accept new clients at any time. SGLang's server is started by a person, and its title resembles its
# helpers' (http_server.py).
_SERVES = re.compile(r"\S+::(?:APIServer|http_server|tokenizer_worker)\b.*|\S+::APIServer_.*")
_FIRST = 1
_ENDED = "ZX"
HOUSEKEEPING = 0.02  # seconds of processor time in a window: what an idle torch engine uses
YOUNG = 60.0  # seconds; a starting job is left alone


@dataclass(frozen=True)
class Around:
    """Further evidence about a helper that has lost its parent.

    `ties` are as returned by `process_ties.ties_of`; `age` is in seconds; `session`: whether the Ray session
    of a Ray process is alive, None if unknown; `debugger` is the number of the process that traces it, or 0.
    `elsewhere` and `foreign` are why it counts as another container's, and as not belonging to vLLM, SGLang
    or Ray, else "". `abandoned`: it holds an end of a pipe or connection whose other end, according to the
    kernel, is closed. `life` are the signs of life that it shows on its own, `activity` those seen while all
    helpers are watched together. `rendezvous` are processes whose listeners only they connect to, as in
    torch.distributed.
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
    """The orphaned helpers, each with the state of its parent, and the kept helpers, each with the reason.

    Parents precede their children. Children of multiprocessing come last: its resource tracker waits for all
    others and then removes the shared memory that they left.
    """

    left: tuple[tuple[Row, str], ...] = ()
    kept: tuple[tuple[Row, str], ...] = ()


def orphans(table: Iterable[Row], around: Around) -> Orphans:
    """Judge all helpers of this user. Helpers with a running parent are omitted."""
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
            reasons[pid] = "it cannot be determined to which Ray it belongs"
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
    """Keep processes that may have been started without a job.

    Nothing about them refers to anything that has ended.

    Ray's own processes are recognised by their dead session. A process connected to a helper that lost its
    job has also lost it.
    """
    left = set(adrift) - set(reasons)
    lost = {pid for pid in left if is_of_ray(rows[pid]) or around.abandoned(rows[pid])}
    reasons |= dict.fromkeys(
        left - _connected(lost, left, rows, ties), "nothing shows that its job has ended"
    )


def _keep_what_lives(
    adrift: Collection[int], reasons: dict[int, str], rows: Mapping[int, Row], around: Around
) -> None:
    """Keep processes with signs of life, of their own or while watched.

    Activity of torch.distributed without a job does not count.
    """
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
    """Return what an activity shows, "" for none.

    Threads of torch and ZeroMQ wake up now and then to check on their peers.
    """
    if activity.hidden:
        return "its activity may not be examined"
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
    """Return the given processes and those `among` the others connected to them.

    Connected are children, and peers by pipe or connection.
    """
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
    """Return whether a process is this user's and belongs to a job that started it."""
    return row.mine and row.state not in _ENDED and is_called_helper(row.command)


def is_called_helper(command: str) -> bool:
    """Return whether a command line belongs to a helper, and not to a server."""
    if _NAMELESS.fullmatch(command, 0, 4096):
        return True
    return role_of(command) in _ROLES and not _SERVES.fullmatch(command)


def is_nameless(row: Row) -> bool:
    """Return whether it is a child of multiprocessing, which shows nothing about its job."""
    return _NAMELESS.fullmatch(row.command, 0, 4096) is not None


def is_of_ray(row: Row) -> bool:
    """Return whether it is a worker or an agent of Ray."""
    return role_of(row.command) in ("ray worker", "ray agent")


def _adrift(rows: Mapping[int, Row], alive: Collection[int] = ()) -> set[int]:
    """Return helpers started by an ended process or another such helper, without Ray's that are `alive`.

    A Ray worker may have been started through another program: the workers of a running Ray must be in
    `alive`.
    """
    helpers = {pid for pid, row in rows.items() if is_helper(row)} - {_FIRST}

    def is_lost(pid: int) -> bool:
        for _ in rows:  # a table read while numbers were reused may contain a cycle
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
    """Drop helpers with a pipe to their parent, such as children of multiprocessing, from `adrift`."""
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
    """Return why a helper is kept regardless of its ties."""
    if row.parent not in rows:
        return "its parent is not visible here: it was started from outside this container, or /proc hides it"
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
        return f"its child {_named(child)} is not a known helper of a job"
    return ""


def _keep_what_is_tied(
    adrift: Collection[int],
    reasons: dict[int, str],
    rows: Mapping[int, Row],
    ties: Mapping[int, Collection[Tie]],
) -> None:
    """Keep processes with ties to a running process, transitively."""
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
                f"with {_named(rows[tie.other])}, which is running"
                if tie.other in rows
                else "whose other end is not visible here"
            )
            return f"it has {tie.by} {whose}"
        if tie.other in reasons and not tie.standard:
            return f"it is connected to process {tie.other}, which is kept"
    if rows[pid].parent in reasons:
        return f"its parent, process {rows[pid].parent}, is kept"
    kept = [child for child in reasons if rows[child].parent == pid]
    return f"its child, process {kept[0]}, is kept" if kept else ""


def _only_listens(tie: Tie, rows: Mapping[int, Row]) -> bool:
    """Return whether the other end only receives the log or the terminal output.

    Examples are tee, a shell, and a container runtime.
    """
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
    """Keep children of multiprocessing that belong to no engine and no Ray worker: their job is unknown."""
    left = set(adrift) - set(reasons)
    known = _connected(left & set(proven), left, rows, ties)
    reasons |= dict.fromkeys(left - known, "its job is unknown")


def _fate_of_parent(row: Row, rows: Mapping[int, Row], left: Collection[int]) -> str:
    parent = rows[row.parent]
    if parent.pid in left:
        return f"its parent, {_named(parent)}, is also left over"
    return f"the process that started it has ended, and {_named(parent)} adopted it"


def _depth(pid: int, rows: Mapping[int, Row]) -> int:
    """Return how many ancestors a process has."""
    depth = 0
    while pid in rows and rows[pid].parent != pid and depth < len(rows):
        depth, pid = depth + 1, rows[pid].parent
    return depth


def _named(row: Row) -> str:
    return f"{row.title.rpartition('/')[2] or 'a process'} (process {row.pid})"
