"""The number of positions of the job's model: the longest sequence that it was designed for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.model import BadFile, named_model, read_json
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

_KEY = "max_position_embeddings"


@dataclass(frozen=True)
class ModelContext:
    """The number of positions of the model, and whether it has RoPE scaling (`scaled`).

    `positions` is `max_position_embeddings` of the model, or of its language model (`nested`).
    """

    positions: int
    read_from: str
    nested: bool = False
    scaled: bool = False


@collector(kept=True)
def model_context(
    machine: Machine, target: Target, launch: Launch | Unknown, configuration: Configuration | Unknown
) -> ModelContext | Unknown:
    """Read the length from the model's config.json, as verl does.

    In verl, this is get_max_position_embeddings in workers/rollout/utils.py.
    """
    named = named_model(machine, target, launch, configuration)
    if isinstance(named, Unknown):
        return named
    path = named.folder / "config.json"
    config = read_json(path)
    if isinstance(config, BadFile):
        return Unknown(f"{path} cannot be read")
    inner = config.get("text_config")
    for part, nested in ((config, False), (inner if isinstance(inner, dict) else {}, True)):
        positions = part.get(_KEY)
        if isinstance(positions, int) and not isinstance(positions, bool):
            return ModelContext(positions, str(path), nested, _scaled(part))
    return Absent(f"{path} does not state how many positions the model has")


def _scaled(config: Mapping[str, Any]) -> bool:
    return bool(config.get("rope_scaling") or config.get("rope_parameters"))
