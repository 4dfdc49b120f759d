"""Which package's code a process runs, judged by what its interpreter has mapped, not by its title."""

from __future__ import annotations

import os
import re

from verl_doctor.toolkit.collectors.processes.processes import role_of
from verl_doctor.toolkit.machine import Machine

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*(?:t|d)?(?:-\w+)?")
# A line of /proc/PID/maps: machine code from a file in a package. Columns: permissions, offset, device,
# inode, path.
_CODE = re.compile(
    r"^\S+ \S\Sx\S \S+ \S+ \d+ +(/\S.*?/(vllm|sglang|sgl_kernel|ray|torch))/([^\n]*\.so[\w.]*)$", re.MULTILINE
)
_ENGINE, _RAY = frozenset({"vllm", "sglang", "sgl_kernel"}), frozenset({"ray"})
_PREFIX = re.compile(r"([\w.-]+)::")
_OWN_PREFIXES = frozenset({"VLLM", "sglang", "ray"})


def code_of(pid: int, machine: Machine) -> frozenset[str]:
    """Return the packages among vLLM, SGLang, Ray and torch whose machine code a process runs.

    Raises OSError if access is denied.
    """
    mapped = machine.at(f"/proc/{pid}/maps").read_text("utf-8", "surrogateescape")
    folders = {(folder, package) for folder, package, _ in _CODE.findall(mapped)}
    return frozenset(package for folder, package in folders if _is_package(pid, folder, machine))


def why_unrecognised(pid: int, command: str, machine: Machine) -> str:
    """Return why a process is not known to belong to vLLM, SGLang or Ray; "" if it does.

    The process is judged by this command line.

    Any process can use the title VLLM::EngineCore. The program must be Python's and run code of the package
    to which the title belongs; a non-default prefix of vLLM's titles must be in the environment that it was
    started with.
    """
    try:
        program = os.readlink(machine.at(f"/proc/{pid}/exe")).removesuffix(" (deleted)")  # noqa: PTH115
        code = code_of(pid, machine)
        if not _INTERPRETER.fullmatch(program.rpartition("/")[2]):
            return f"its title proves nothing: its program is {program}, not Python"
        wanted = _RAY if role_of(command) in ("ray worker", "ray agent") else _ENGINE
        if not code & wanted:
            return (
                "its title proves nothing: it runs no code of "
                f"{'Ray' if wanted is _RAY else 'vLLM or SGLang'}"
            )
        prefix = _PREFIX.match(command)
        if prefix and prefix[1] not in _OWN_PREFIXES and not _sets_prefix(pid, prefix[1], machine):
            return f"its title proves nothing: VLLM_PROCESS_NAME_PREFIX is not {prefix[1]} in its environment"
    except FileNotFoundError:
        return "it has ended"
    except OSError as error:
        return f"its code may not be examined ({error.strerror})"
    return ""


def _sets_prefix(pid: int, prefix: str, machine: Machine) -> bool:
    environ = machine.at(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return b"VLLM_PROCESS_NAME_PREFIX=" + prefix.encode() in environ


def _is_package(pid: int, folder: str, machine: Machine) -> bool:
    return os.path.isfile(machine.at(f"/proc/{pid}/root{folder}/__init__.py"))
