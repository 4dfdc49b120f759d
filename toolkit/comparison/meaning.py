"""Where no rule speaks of a difference: whether it matters to a job that a subject was one thing and is another, and what to do."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable

from packaging.version import VERSION_PATTERN, Version

from verl_doctor.toolkit.cluster import fleet_subjects
from verl_doctor.toolkit.collectors.launch.environment import is_listed

Matters = Callable[[str, str, str], bool]
"""Of a subject's name, its old and its new value."""

Step = Callable[[str, str, str], str]
"""What would make it as it was, of the same; "" where no command would."""

WITHHELD = "(set; its value is not kept)"
THERE = "there"
SHARED = "shared with other machines"
NOT_WRITABLE = "not writable"
IN_STEP = "synchronised"

# They name a host, a session, a process or an allocation, or describe an image to who reads it.
_PASSING = re.compile(
    r"NVIDIA_(?:REQUIRE_|PRODUCT)\w+|\w+_VERSION|HOSTNAME|SLURM_\w+|MASTER_(?:ADDR|PORT)|\w*_(?:PORT|PID|JOB_?ID|SESSION_\w+)|PATH"
    r"|VIRTUAL_ENV|CONDA_\w+|RANK"
)
# They say where things lie and what things are called, which is another place and another name on another machine.
_PLACES = re.compile(r"(?:.*\.)?(?:experiment_name|project_name|\w*(?:path|dir|files?|folder))")
# What a value cannot be restored from: a folder of the old machine, a secret.
_NOT_TOLD = re.compile(r"<\w+>|\*\*\*")
# Names and versions that may stand in a command: they come from a file that anybody can have written.
_PACKAGE = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
)  # https://peps.python.org/pep-0508/#names
_RELEASE = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE | re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ULIMIT = {"open files": ("n", 1), "processes": ("u", 1), "locked memory": ("l", 1024)}


def always(_name: str, _old: str, _new: str) -> bool:
    """It matters."""
    return True


def never(_name: str, _old: str, _new: str) -> bool:
    """It is good to know, and no more."""
    return False


def less(_name: str, old: str, new: str) -> bool:
    """More of it than before stops nobody."""
    return _amount(new) < _amount(old)


def _amount(text: str) -> float:
    if text == "unlimited":
        return math.inf
    found = re.match(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if found else 0.0


def lost(_name: str, old: str, new: str) -> bool:
    """What lies at another place was named otherwise, and the rules look whether it is there."""
    return old == THERE and bool(new)


def edited(_name: str, old: str, _new: str) -> bool:
    """A file that was missing before is not needed."""
    return old != "missing"


def variable(name: str, _old: str, _new: str) -> bool:
    """It is of the kind that packages of the stack read, and names no host and no session."""
    return is_listed(name) and not _PASSING.fullmatch(name) and not fleet_subjects.OWN.fullmatch(name)


def setting(name: str, _old: str, _new: str) -> bool:
    """It decides what the job does, not where its files lie."""
    return not _PLACES.fullmatch(name)


def mount(_name: str, old: str, new: str) -> bool:
    """Data and models lie on what is shared; a new disk stops nobody."""
    return SHARED in old or (bool(old) and NOT_WRITABLE in new)


def clock(_name: str, _old: str, new: str) -> bool:
    """A clock that is in step again is well."""
    return new != IN_STEP


def nothing(_name: str, _old: str, _new: str) -> str:
    """No command helps."""
    return ""


def say(step: str) -> Step:
    """The same step for all, with `{name}` and `{old}`, where there was something before."""
    return lambda name, old, _: step.format(name=name, old=old) if old else ""


def install(name: str, old: str, _new: str) -> str:
    """The release as it was, unless the new one is later: an upgrade is meant. What is no name or no version stands in no command."""
    release, now = (version.removesuffix(" (editable)") for version in (old, _new))
    if not _PACKAGE.fullmatch(name) or not _RELEASE.fullmatch(release):
        return ""
    if _RELEASE.fullmatch(now) and Version(now) >= Version(release):
        return ""
    return f"pip install {shlex.quote(f'{name}=={release}')}"


def export(name: str, old: str, _new: str) -> str:
    """The value as it was, as far as it can be known here."""
    if not _VARIABLE.fullmatch(name):
        return ""
    if not old:
        return f"unset {name}"
    if old == WITHHELD:
        return f"set {name} here too"
    return "" if _NOT_TOLD.search(old) else f"export {name}={shlex.quote(old)}"


def override(name: str, old: str, _new: str) -> str:
    """A word for the launch command."""
    return shlex.quote(f"{name}={old}") if old else ""


def ulimit(name: str, old: str, _new: str) -> str:
    """The limit as it was, before Ray is started; "" for one that no shell command sets."""
    if name not in _ULIMIT:
        return ""
    letter, unit = _ULIMIT[name]
    amount = str(int(old) // unit) if old.isdecimal() else old
    comparable = old.isdecimal() or old == "unlimited"
    return f"ulimit -{letter} {amount}  # before Ray is started" if comparable else ""


def shm_size(_name: str, old: str, _new: str) -> str:
    """As large as it was."""
    size = f"{math.ceil(int(old) / 2**30)}g" if old.isdecimal() else ""
    return f"docker run --shm-size={size}, or: mount -o remount,size={size} /dev/shm" if size else ""
