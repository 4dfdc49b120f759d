"""Loads all modules of stages, in the order in which the stages run."""

from __future__ import annotations

import importlib

_MODULES = ("program", "model", "data", "rollout", "prompts", "reward", "training", "world", "algorithm")


def load() -> None:
    """Fill the table of stages."""
    for name in _MODULES:
        importlib.import_module(f"verl_doctor.toolkit.probes.construction.stage_{name}")
