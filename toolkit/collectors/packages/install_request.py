"""What one installer command must ask for so that verl's and vLLM's requirements agree. Pure: nobody is asked here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.installed.packages import VLLM_NAMES, Packages
from verl_doctor.toolkit.collectors.packages.requirements import Requirements, Unmet

# What a job needs is PKG101's judgement. It stands here because the dry run needs it too, and the engine imports no rule.
ENGINES = frozenset({"vllm", "sglang"})
# Named by extras only, yet verl's trainer imports it unguarded: a worker dies of that after 28 s (verl 0.9.1, 2026-11).
_UNDECLARED = frozenset({"transferqueue"})


@dataclass(frozen=True)
class Wishes:
    """What one command asks for: the pins of what stays, and what must be changed or added."""

    keeps: tuple[str, ...]
    wanted: tuple[str, ...]


def required(unmet: Unmet) -> bool:
    """Whether a job needs this: a plain requirement, or one that only an engine's extra names although verl imports it."""
    return not unmet.extra or (unmet.extra in ENGINES and unmet.name in _UNDECLARED)


def wishes_of(packages: Packages, requirements: Requirements) -> Wishes:
    """Compose what to ask for."""
    keeps = tuple(_keeps(packages, requirements))
    return Wishes(keeps, tuple(_wanted(requirements, keeps)))


def _keeps(packages: Packages, requirements: Requirements) -> Iterator[str]:
    """Pin verl and vLLM as installed, and torch unless it is what one of the others cannot live with."""
    contradicted = {unmet.name for unmet in requirements.unmet if not unmet.extra}
    for name in ("verl", *VLLM_NAMES, "torch"):
        distribution = packages.get(name)
        if distribution is not None and not (name == "torch" and name in contradicted):
            yield f"{name}=={distribution.version}"


def _wanted(requirements: Requirements, keeps: tuple[str, ...]) -> Iterator[str]:
    """Name what has a wrong version, or is missing although no metadata asks for it; the installer finds the rest.

    What a package wants that will itself be changed does not count: its successor may want something else.
    """
    kept = {pin.partition("==")[0] for pin in keeps}
    named = [
        unmet
        for unmet in requirements.unmet
        if required(unmet) and unmet.name not in kept and (unmet.there or unmet.extra)
    ]
    changing = {unmet.name for unmet in named}
    specifiers: dict[str, list[str]] = {}
    for unmet in named:
        if unmet.by not in changing:
            specifiers.setdefault(unmet.name, []).append(unmet.wanted)
    for name, wanted in sorted(specifiers.items()):
        yield name + ",".join(dict.fromkeys(filter(None, wanted)))
