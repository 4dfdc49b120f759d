"""Which modules an adapter would get, by the weights' names, in families whose modules have those names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.roles import loads_with_transformers
from verl_doctor.toolkit.collectors.model.model import BadFile, Model, read_json
from verl_doctor.toolkit.collectors.model.weight_shapes import FAMILIES, tensors
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.pattern import is_quick

_TARGETS: Literal["target_modules"] = "target_modules"
_EXCLUDED: Literal["exclude_modules"] = "exclude_modules"
_PARAMETERS = "target_parameters"
_PREFIX = "model."
_ALL = "all-linear"
_OUTPUT = "lm_head"  # not stored if it is the embedding; PEFT leaves it out of all linear modules
_LINEAR = re.compile(r"(?:.*\.)?\w+_proj")


@dataclass(frozen=True)
class AdapterModules:
    """What an adapter of the model in `folder` lacks.

    `lacking`: "target_modules" match no module, "exclude_modules" match all of them, or "" for neither. `key`
    is the setting, `names` are the last parts of the names of the model's linear modules.
    """

    folder: str
    lacking: Literal["", "target_modules", "exclude_modules"] = ""
    key: str = ""
    names: tuple[str, ...] = ()


@collector(kept=True)
def adapter_modules(model: Model, configuration: Configuration) -> AdapterModules | Unknown:
    """Match the adapter's patterns with the names of the model's modules as PEFT does."""
    section = "actor_rollout_ref.model" if configuration.has("actor_rollout_ref") else "model"
    rank = configuration.number(f"{section}.lora_rank") or 0
    if rank <= 0 or configuration.get(f"{section}.lora_adapter_path") not in (None, MISSING):
        return Absent("the job trains no new adapter")
    if not loads_with_transformers(configuration):
        return Absent("PEFT may not be what chooses the modules")
    config = read_json(Path(model.folder, "config.json"))
    if (
        isinstance(config, BadFile)
        or config.get("model_type") not in FAMILIES
        or config.get("quantization_config")
    ):
        return Absent("the names of this model's modules do not follow from its weights")
    if configuration.get(f"{section}.{_PARAMETERS}") not in (None, MISSING):
        return Absent("the adapter may have parameters in place of modules")
    stored = tensors(Path(model.folder))
    targets, excluded = (
        _patterns(configuration, section, _TARGETS),
        _patterns(configuration, section, _EXCLUDED),
    )
    if not any(name.startswith(_PREFIX) for name in stored):
        return Absent(
            "the weights are those of a base model, whose modules get other names when it is loaded"
        )
    if targets is None or excluded is None or not targets:
        return Absent("the names of the modules, or the patterns, are not known")
    longest = max(map(len, stored))
    if any(isinstance(given, str) and not is_quick(given, longest) for given in (targets, excluded) if given):
        return Absent("a pattern may take too long to be matched")
    modules = {name.rpartition(".")[0] for name in stored} | {_OUTPUT}
    modules |= {
        ".".join(steps[:end])
        for name in modules
        for steps in [name.split(".")]
        for end in range(1, len(steps))
    }
    linear = {name for name in modules if _LINEAR.fullmatch(name)}
    chosen = linear if targets == _ALL else {name for name in modules if _matches(targets, name)}
    names = tuple(sorted({name.rpartition(".")[2] for name in linear}))
    if not chosen:
        return AdapterModules(model.folder, _TARGETS, f"{section}.{_TARGETS}", names)
    if excluded and all(_matches(excluded, name) for name in chosen):
        return AdapterModules(model.folder, _EXCLUDED, f"{section}.{_EXCLUDED}", names)
    return AdapterModules(model.folder)


def _patterns(configuration: Configuration, section: str, name: str) -> str | Sequence[str] | None:
    """Return a pattern, or names; "" for none, and None for what is not known, or of another type."""
    value = configuration.get(f"{section}.{name}")
    if value in (None, MISSING):
        return ""
    if isinstance(value, str):
        return None if "${" in value or not _is_pattern(value) else _ALL if value.lower() == _ALL else value
    known = isinstance(value, list) and all(isinstance(part, str) and "${" not in part for part in value)
    return list(value) if known else None


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _matches(wanted: str | Sequence[str], name: str) -> bool:
    """Return whether PEFT takes a module for one of these."""
    if isinstance(wanted, str):
        return re.fullmatch(wanted, name) is not None
    return any(name == part or name.endswith(f".{part}") for part in wanted)
