"""Errors of plugins: the registry records them, a rule reports them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PluginProblem:
    """An entry point that could not be used: its name, the declaring distribution, and the error message."""

    entry_point: str
    distribution: str
    error: str


@dataclass(frozen=True)
class PluginProblems:
    """All plugins that could not be used. Provided by the registry, not by a collector."""

    problems: tuple[PluginProblem, ...] = ()
