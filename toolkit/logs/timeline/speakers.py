"""Who speaks in a line of a log, as processes that can be told apart: by number and node, whatever they call themselves meanwhile."""

from __future__ import annotations

import re
from dataclasses import dataclass

from verl_doctor.toolkit.logs.lines import Line

DRIVER = "driver"
"""The process whose lines bear no name: the one that was started by hand."""

Key = tuple[str, str]
"""A process: the address of its node where that is told, and its number, else its name."""

NOBODY: Key = ("", DRIVER)

_LABELS = 200  # characters in which names are looked for
_NODE = re.compile(r"\bip=([\w.:-]{2,64})")
_NAMED = re.compile(r"\((?P<who>[^()]{0,80}(?:\([\w-]*\))?[^()]{0,20}\b(?:pid|PID)=\d{1,10})[^()]*\)")
_PID = re.compile(r"\bpid=(\d{1,10})$", re.IGNORECASE)
# torch's loggers in Python tell their process.
_TORCH = re.compile(r"[DIWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} (\d{1,10}) torch/")
# How the labels of collectors of logs end: a clock, a name between bars or in brackets.
_COLLECTED = re.compile(r"[\d|\]:>-] *$")
_RANKS = re.compile(r"(?:[_-](?:[A-Z]{2,4})?\d{1,5})+$")
_NAMELESS = ("pid=", "worker pid=")
# Names of Ray's files in session_*/logs: of a worker, with its number; Ray's own log of it; what Ray's daemons write.
_OF_WORKER = re.compile(r"worker-[0-9a-f]{8,64}-[0-9a-f]{8}-(\d{1,10})\.(?:out|err)")
_OF_CORE = re.compile(r"python-core-(?:worker|driver)-\w+?_(\d{1,10})\.log")
_OF_RAY = re.compile(
    r"raylet|gcs_server|dashboard|monitor|log_monitor|runtime_env|debug_state|ray_client|agent-"
)


@dataclass(frozen=True)
class Speaker:
    """Who speaks in a line: the process, its name and node, and the process in whose output it speaks, if it is another."""

    key: Key
    name: str
    node: str
    parent: Key | None


@dataclass(frozen=True)
class LogFile:
    """What the name of a file tells: that it is one worker's (`worker`, its name), Ray's log of one (`core`, its number), or a daemon's."""

    worker: str = ""
    core: str = ""
    is_of_ray: bool = False


def file_of(source: str) -> LogFile:
    """Read the name of a file, as Ray gives it."""
    name = source.rpartition("/")[2]
    if match := _OF_WORKER.match(name):
        return LogFile(worker=f"worker pid={match[1]}")
    if match := _OF_CORE.match(name):
        return LogFile(core=match[1])
    return LogFile(is_of_ray=bool(_OF_RAY.match(name)))


def speaker(line: Line, labels: str, owner: str = "") -> Speaker:
    """Who speaks in a line with these labels; `owner` is whose lines those without a name are."""
    names = [match["who"] for match in _NAMED.finditer(labels[:_LABELS])]
    name = (names[-1] if names else line.process) or owner or DRIVER
    if (match := _TORCH.search(labels)) and not name.endswith(f"pid={match[1]}"):
        names, name = [*names, name], f"pid={match[1]}"
    node = match[1] if (match := _NODE.search(labels)) else ""
    return Speaker(_key(name, node), name, node, _key(names[-2], node) if len(names) > 1 else None)


def labels_of(line: Line) -> str:
    """What stands before the words of a line, also behind what a collector of logs put there that is not known as one."""
    if not line.process and "pid=" in line.text[:_LABELS]:
        named = list(_NAMED.finditer(line.written[:_LABELS]))
        if named and _COLLECTED.search(line.written, 0, named[0].start()):
            return line.written[: named[-1].end()]
    return line.written[: len(line.written) - len(line.text)]


def is_nameless(name: str) -> bool:
    """Whether only the number of a process is known: Ray knows the name of an actor when it runs."""
    return name.startswith(_NAMELESS)


def kind_of(name: str) -> str:
    """What a process is, without its number and rank: "EngineCore" of "EngineCore_DP0 pid=12", "VllmWorker" of "VllmWorker-0 pid=12"."""
    word = name.partition(" ")[0]
    return _RANKS.sub("", word) or word


def _key(name: str, node: str) -> Key:
    match = _PID.search(name)
    return (node, match[1]) if match else (node, name)
