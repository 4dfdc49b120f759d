"""Finds the process that printed a log line.

Processes are distinguished by number and node, even if their names change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from verl_doctor.toolkit.logs.lines import Line

DRIVER = "driver"
"""The process whose lines have no name: the program that the user started."""

Key = tuple[str, str]
"""A process: the address of its node, if known, and its number, otherwise its name."""

UNNAMED: Key = ("", DRIVER)

_LABELS = 200  # characters in which names are searched for
_NODE = re.compile(r"\bip=([\w.:-]{2,64})")
_NAMED = re.compile(r"\((?P<who>[^()]{0,80}(?:\([\w-]*\))?[^()]{0,20}\b(?:pid|PID)=\d{1,10})[^()]*\)")
_PID = re.compile(r"\bpid=(\d{1,10})$", re.IGNORECASE)
# torch's Python loggers include their process.
_TORCH = re.compile(r"[DIWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} (\d{1,10}) torch/")
# How the labels of log collectors end: a clock, a name between bars or in brackets.
_COLLECTED = re.compile(r"[\d|\]:>-] *$")
_RANKS = re.compile(r"(?:[_-](?:[A-Z]{2,4})?\d{1,5})+$")
_NAMELESS = ("pid=", "worker pid=")
# Names of Ray's files in session_*/logs: of a worker, with its number; Ray's own log of a worker; output of
# Ray's daemons.
_OF_WORKER = re.compile(r"worker-[0-9a-f]{8,64}-[0-9a-f]{8}-(\d{1,10})\.(?:out|err)")
_OF_CORE = re.compile(r"python-core-(?:worker|driver)-\w+?_(\d{1,10})\.log")
_OF_RAY = re.compile(
    r"raylet|gcs_server|dashboard|monitor|log_monitor|runtime_env|debug_state|ray_client|agent-"
)


@dataclass(frozen=True)
class Printer:
    """The process that printed a line.

    Its name and node, and the process in whose output it prints, if that is another.
    """

    key: Key
    name: str
    node: str
    parent: Key | None


@dataclass(frozen=True)
class LogFile:
    """What a file name shows.

    The output of a worker (`worker`, its name), Ray's log of a worker (`core`, its number), or that of a
    daemon.
    """

    worker: str = ""
    core: str = ""
    is_of_ray: bool = False


def file_of(source: str) -> LogFile:
    """Parse a file name as Ray forms it."""
    name = source.rpartition("/")[2]
    if match := _OF_WORKER.match(name):
        return LogFile(worker=f"worker pid={match[1]}")
    if match := _OF_CORE.match(name):
        return LogFile(core=match[1])
    return LogFile(is_of_ray=bool(_OF_RAY.match(name)))


def printer_of(line: Line, labels: str, owner: str = "") -> Printer:
    """Return the process that printed a line with these labels; `owner` is the process of unnamed lines."""
    names = [match["who"] for match in _NAMED.finditer(labels[:_LABELS])]
    name = (names[-1] if names else line.process) or owner or DRIVER
    if (match := _TORCH.search(labels)) and not name.endswith(f"pid={match[1]}"):
        names, name = [*names, name], f"pid={match[1]}"
    node = match[1] if (match := _NODE.search(labels)) else ""
    return Printer(_key(name, node), name, node, _key(names[-2], node) if len(names) > 1 else None)


def labels_of(line: Line) -> str:
    """Return what precedes a line's text, including text after an unknown collector's label."""
    if not line.process and "pid=" in line.text[:_LABELS]:
        named = list(_NAMED.finditer(line.written[:_LABELS]))
        if named and _COLLECTED.search(line.written, 0, named[0].start()):
            return line.written[: named[-1].end()]
    return line.written[: len(line.written) - len(line.text)]


def is_nameless(name: str) -> bool:
    """Return whether only the number of a process is known.

    Ray does not have the name of an actor before it runs.
    """
    return name.startswith(_NAMELESS)


def kind_of(name: str) -> str:
    """Return a process's kind, without number and rank.

    "EngineCore" of "EngineCore_DP0 pid=12", "VllmWorker" of "VllmWorker-0 pid=12".
    """
    word = name.partition(" ")[0]
    return _RANKS.sub("", word) or word


def _key(name: str, node: str) -> Key:
    match = _PID.search(name)
    return (node, match[1]) if match else (node, name)
