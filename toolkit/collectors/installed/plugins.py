"""What went wrong with plugins: the registry says it, a rule reports it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PluginProblem:
    """One entry point that could not be used: its name, the distribution that declares it, and the error in words."""

    entry_point: str
    distribution: str
    error: str


@dataclass(frozen=True)
class PluginProblems:
    """All plugins that could not be used. The registry provides it, no collector does."""

    problems: tuple[PluginProblem, ...] = ()
