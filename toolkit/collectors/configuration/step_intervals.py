"""How the program of a fine-tuning job uses the intervals at which it validates and saves."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import read

_DIVIDES = re.compile(rb"^[^#\n>]*%\s*(?:[\w.]+\.)?(test_freq|save_freq)\b", re.MULTILINE)
_NO_LOADER = b"self.val_dataloader = None"
_VALIDATES = re.compile(rb"\bor \(self\.test_freq > 0 and is_valid_step\)")


@dataclass(frozen=True)
class StepIntervals:
    """The settings by which the program at `path` divides the number of a step after each step.

    It does so whatever their values.

    `needs_table`: it validates at `trainer.test_freq` also if the job has no validation table.
    """

    path: str
    divides: tuple[str, ...] = ()
    needs_table: bool = False


@collector(kept=True)
def step_intervals(configuration: Configuration) -> StepIntervals | Unknown:
    """Read the program of a fine-tuning job."""
    if configuration.has("actor_rollout_ref") or not os.path.isfile(configuration.program):
        return Absent("this job does no fine-tuning")
    source = read(Path(configuration.program))
    if not isinstance(source, bytes):
        return Unknown(source.reason)
    names = dict.fromkeys(match[1].decode() for match in _DIVIDES.finditer(source))
    return StepIntervals(
        configuration.program,
        tuple(f"trainer.{name}" for name in names),
        _NO_LOADER in source and _VALIDATES.search(source) is not None,
    )
