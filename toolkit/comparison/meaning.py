"""Judge differences without a rule: whether a changed value matters to a job, and the remedy."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import replace

from packaging.version import VERSION_PATTERN, Version

from verl_doctor.toolkit.cluster import fleet_subjects
from verl_doctor.toolkit.collectors.launch.environment import is_listed
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.text import appended

Matters = Callable[[str, str, str], bool]
"""Takes a subject's name, its old and its new value, and returns whether the difference matters."""


class ByHand(str):
    """A remedy in words: what to do by hand. Any other remedy is a command, which is never wrapped."""

    __slots__ = ()


Step = Callable[[str, str, str], str]
"""Takes the same, and returns the command or the words that restore the old value; "" if there are none."""

WITHHELD = "(set; its value is not kept)"
THERE = "there"
SHARED = "shared with other machines"
NOT_WRITABLE = "not writable"
IN_STEP = "synchronised"

# They name a host, session, process or allocation, or describe an image to readers.
_PASSING = re.compile(
    r"NVIDIA_(?:REQUIRE_|PRODUCT)\w+|\w+_VERSION|HOSTNAME|SLURM_\w+|MASTER_(?:ADDR|PORT)|\w*_(?:PORT|PID"
    r"|JOB_?ID|SESSION_\w+)|PATH|VIRTUAL_ENV|CONDA_\w+|RANK"
)
# They hold paths and names, which differ between machines.
_PLACES = re.compile(r"(?:.*\.)?(?:experiment_name|project_name|\w*(?:path|dir|files?|folder))")
# A value cannot be restored from these: a folder of the old machine, a secret.
_PLACEHOLDER = re.compile(r"<\w+>|\*\*\*")
# Names and versions that are safe in a command: they come from an untrusted file.
_PACKAGE = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
)  # https://peps.python.org/pep-0508/#names
_RELEASE = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE | re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ULIMIT = {"open files": ("n", 1), "processes": ("u", 1), "locked memory": ("l", 1024)}


def always(_name: str, _old: str, _new: str) -> bool:
    """Return True: every difference matters."""
    return True


def never(_name: str, _old: str, _new: str) -> bool:
    """Return False: the difference is informative only."""
    return False


def less(_name: str, old: str, new: str) -> bool:
    """Return whether there is less than before; more is harmless."""
    return _amount(new) < _amount(old)


def _amount(text: str) -> float:
    if text == "unlimited":
        return math.inf
    found = re.match(r"\d+(?:\.\d+)?", text)
    return float(found[0]) if found else 0.0


def lost(_name: str, old: str, new: str) -> bool:
    """Return whether an existing path changed its state.

    A moved path has another name, and the rules check whether it exists.
    """
    return old == THERE and bool(new)


def edited(_name: str, old: str, _new: str) -> bool:
    """Return whether the file existed before; a new file is not needed."""
    return old != "missing"


def variable(name: str, _old: str, _new: str) -> bool:
    """Return whether packages of the stack read this kind of variable, and it names no host or session."""
    return is_listed(name) and not _PASSING.fullmatch(name) and not fleet_subjects.OWN.fullmatch(name)


def setting(name: str, _old: str, _new: str) -> bool:
    """Return whether the setting decides what the job does, not where its files are."""
    return not _PLACES.fullmatch(name)


def mount(_name: str, old: str, new: str) -> bool:
    """Return whether a mount for data or models is affected.

    Such mounts are on shared file systems; a new disk is harmless.
    """
    return SHARED in old or (bool(old) and NOT_WRITABLE in new)


def clock(_name: str, _old: str, new: str) -> bool:
    """Return whether the clock is not synchronised now."""
    return new != IN_STEP


def nothing(_name: str, _old: str, _new: str) -> str:
    """Return "": no command helps."""
    return ""


def fixed_command(command: str) -> Step:
    """Return the same command for all, if there was an old value."""
    return lambda _name, old, _new: command if old else ""


def words(text: str) -> Step:
    """Return the same words for all, with `{name}` and `{old}`, if there was an old value."""
    return lambda name, old, _: ByHand(text.format(name=name, old=old) if old else "")


OTHER_PATCHES = "verl-doctor patches apply FILE --apply  # FILE: verl-doctor patches export FILE, there"
"""The command for patches that nothing but the old tree contains."""

LAUNCH = "LAUNCH_SCRIPT"
"""Stands in a command for the job that the user named, if any."""


def environment_arguments(target: Target) -> tuple[str, ...]:
    """Return the options that name the same target in a command about the environment, not about a job."""
    return replace(target, files=(), words=(), model=None, data=(), libraries=(), ray_address="").arguments


def complete(step: str, target: Target) -> str:
    """Return a command that, pasted as it is, is about the target that the user named.

    pip is that of the named interpreter; a package whose tree was named is installed as another tree. A
    remedy in words stays as it is.
    """
    if isinstance(step, ByHand):
        return step
    command, separator, comment = step.partition("  # ")
    if command.startswith("verl-doctor patches "):
        command += appended(environment_arguments(target))
    elif command.startswith(("verl-doctor fix ", "verl-doctor check ")):
        if target.files or target.words:
            command = command.removesuffix(f" {LAUNCH}")
        command += appended(target.arguments)
    elif command.startswith("pip install "):
        if option := _option_of_tree(command, target):
            command = command.replace("pip install ", "pip install --no-deps --target FOLDER ", 1)
            separator, comment = "  # ", f"FOLDER: a new one, to be named with {option}"
        if "--python" in target.arguments:
            command = f"{shlex.quote(str(target.python))} -m {command}"
    return f"{command}{separator}{comment}"


def _option_of_tree(command: str, target: Target) -> str:
    """Return the option that named the tree of the package that a command installs; "" if none did."""
    package = shlex.split(command)[2].partition("==")[0]
    named = {"verl": target.verl, "vllm": target.vllm, **dict(target.libraries)}
    if named.get(package) is None:
        return ""
    return "--verl" if package == "verl" else f"--tree {package}=FOLDER"


def install(name: str, old: str, _new: str) -> str:
    """Install the old release, unless the new one is later, which means an upgrade.

    Invalid names and versions are left out of commands.
    """
    release, now = (version.removesuffix(" (editable)") for version in (old, _new))
    if not _PACKAGE.fullmatch(name) or not _RELEASE.fullmatch(release):
        return ""
    if _RELEASE.fullmatch(now) and Version(now) >= Version(release):
        return ""
    return f"pip install {shlex.quote(f'{name}=={release}')}"


def export(name: str, old: str, _new: str) -> str:
    """Export the old value, as far as it is known here."""
    if not _VARIABLE.fullmatch(name):
        return ""
    if not old:
        return f"unset {name}"
    if old == WITHHELD:
        return ByHand(f"set {name} here too")
    return "" if _PLACEHOLDER.search(old) else f"export {name}={shlex.quote(old)}"


def override(name: str, old: str, _new: str) -> str:
    """Return an override for the launch command; "" for verl's own reference to another setting."""
    known = old and "${" not in old
    return ByHand(f"add {shlex.quote(f'{name}={old}')} to the launch command" if known else "")


def ulimit(name: str, old: str, _new: str) -> str:
    """Set the old limit before Ray is started; "" for limits that no shell command sets."""
    if name not in _ULIMIT:
        return ""
    letter, unit = _ULIMIT[name]
    amount = str(int(old) // unit) if old.isdecimal() else old
    comparable = old.isdecimal() or old == "unlimited"
    return f"ulimit -{letter} {amount}  # before Ray is started" if comparable else ""


def shm_size(_name: str, old: str, _new: str) -> str:
    """Restore the old size."""
    size = f"{math.ceil(int(old) / 2**30)}g" if old.isdecimal() else ""
    return ByHand(f"docker run --shm-size={size}, or: mount -o remount,size={size} /dev/shm" if size else "")
