"""The operating system and the processor, for bug reports."""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from dataclasses import dataclass

from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.machine import Machine

_VALUE = re.compile(r"^(\w+)=[\"']?(.*?)[\"']?$", re.MULTILINE)
_FIELD = re.compile(r"^([^:\n]+?)\s*:\s*(.*)$", re.MULTILINE)
_MODEL = ("model name", "Model name", "Processor", "cpu")
_LIMIT = 3.0  # seconds
_IMPLEMENTER = "CPU implementer"


@dataclass(frozen=True)
class Processors:
    """The processors of the machine, whatever a job may use of them.

    `model` is the kernel's name, "" if it has none.

    `threads` are what the kernel schedules on, `cores` and `sockets` are 0 if unknown.
    """

    model: str = ""
    vendor: str = ""
    threads: int = 0
    cores: int = 0
    sockets: int = 0


@dataclass(frozen=True)
class System:
    """The result of uname(2), the distribution, and the processors.

    The distribution is the one named in /etc/os-release ("Debian GNU/Linux 12 (bookworm)").

    `lscpu` are the lines printed by that program, empty if it is not installed.
    """

    name: str
    release: str
    version: str
    node: str
    machine: str
    distribution: str = ""
    processors: Processors = Processors()
    lscpu: tuple[str, ...] = ()


@collector()
def system(machine: Machine) -> System:
    """Query the kernel, read its files, and run lscpu(1)."""
    uname = platform.uname()
    release = dict(_VALUE.findall(machine.read("/etc/os-release") or ""))
    return System(
        name=uname.system,
        release=uname.release,
        version=uname.version,
        node=uname.node,
        machine=uname.machine,
        distribution=release.get("PRETTY_NAME", ""),
        processors=_processors(machine.read("/proc/cpuinfo") or ""),
        lscpu=_lscpu(machine),
    )


def _lscpu(machine: Machine) -> tuple[str, ...]:
    try:
        result = machine.run(("lscpu",), timeout=_LIMIT, env={"LC_ALL": "C"})
    except OSError:
        return ()
    return tuple(result.stdout.splitlines()) if result.code == 0 else ()


def _processors(listed: str) -> Processors:
    """Parse proc_cpuinfo(5): a paragraph per thread, with field names that depend on the architecture."""
    threads = [dict(_FIELD.findall(part)) for part in listed.split("\n\n") if "processor" in part]
    if not threads:
        return Processors(threads=os.cpu_count() or 0)
    cores = Counter((thread.get("physical id"), thread.get("core id")) for thread in threads)
    first = threads[0]
    return Processors(
        model=next((first[name] for name in _MODEL if first.get(name)), ""),
        vendor=first.get("vendor_id", "") or first.get(_IMPLEMENTER, ""),
        threads=len(threads),
        cores=len(cores) if "core id" in first else 0,
        sockets=len({thread.get("physical id") for thread in threads}) if "physical id" in first else 0,
    )
