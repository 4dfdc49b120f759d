"""The values that decide a job's path through verl: its configuration, and the variables that verl reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from verl_doctor.toolkit.sources.hydra.lookup import MISSING, UNDETERMINED, lookup
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR

ROLLOUT: Final = "actor_rollout_ref.rollout"
_SHARED = "actor_rollout_ref"
# The keys that distinguish a job's paths, each of which is judged separately.
_OF_PATHS = frozenset({f"{ROLLOUT}.mode", f"{ROLLOUT}.name"})
_WORD = re.compile(r"[A-Za-z_]\w*")
_CONFIG = re.compile(r"_?(?:(\w+?)_)?(?:config|cfg|conf)")
_CLASS = re.compile(r"(?:HF|FSDP|Mcore|Megatron)?([A-Z]\w*?)Config")
# Annotations that leave open which section a parameter is.
_OPEN = frozenset(
    {"Any", "DictConfig", "ListConfig", "Mapping", "None", "Optional", "Union", "config", "dict"}
)
# Parts of verl that a setting switches on, by the word that names them in keys, values, modules and variables.
_FEATURES = ("fp8", "lora", "modelopt", "mtp", "qat", "replay", "torchao")
# Variables that a scheduler, Ray or verl itself sets for each process.
_PER_PROCESS = re.compile(
    r"(?:CUDA|HIP|ROCR|ASCEND|LOCAL|MASTER|NCCL|OMPI|PMI|RAY|SLURM|WG|TORCHELASTIC)_|(?:LOCAL_)?RANK|WORLD_SIZE"
)


@dataclass(frozen=True, slots=True)
class SettingsSection:
    """A part of the configuration, by the dotted keys at which it may be found: the first with a value counts."""

    homes: tuple[str, ...]


@dataclass(slots=True)
class Settings:
    """A composed configuration, and variables by name. `withheld` are variables that are set to unknown values.

    `chosen`: they come from a launch script, and are not verl's defaults alone. `program` is the file that
    reads them, "" for verl's own trainer; `features` are the optional parts that the script switches on.
    `consulted` are the keys and variables that were looked up, each with its value as text.
    """

    tree: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    chosen: bool = False
    program: str = ""
    features: tuple[str, ...] = ()
    consulted: dict[str, str] = field(default_factory=dict)
    _classes: dict[str, tuple[str, ...]] | None = None

    def value(self, section: SettingsSection, key: str) -> Any:
        """Return the value of a key of a section: a Python value, a `SettingsSection`, MISSING, or UNCLEAR."""
        for home in section.homes:
            whole = f"{home}.{key}".strip(".")
            found = self.at(whole)
            if isinstance(found, Mapping):
                return SettingsSection((whole,))
            if found is not MISSING:
                return found
        return MISSING

    def at(self, key: str) -> Any:
        """Return the value of a dotted key in the tree, MISSING, or UNCLEAR."""
        if key in _OF_PATHS:
            return UNCLEAR
        found = lookup(self.tree, key) if key else self.tree
        self.consulted[key] = "a section" if isinstance(found, Mapping) else repr(found)
        return UNCLEAR if found is UNDETERMINED or found == "???" else found

    def answer(self, name: str) -> str:
        """Return the value of a key, or of a variable written `$NAME`, as stored in `consulted`."""
        if name.startswith("$"):
            return repr(self.variable(name[1:], None))
        self.at(name)
        return self.consulted.get(name, "")

    def leaves_out(self, module: str) -> bool:
        """Return whether a module belongs to an optional part of verl that the launch script does not switch on."""
        parts = set(re.split(r"[._]", module.replace("replay_buffer", ""))).intersection(_FEATURES)
        return self.chosen and bool(parts) and parts.isdisjoint(self.features)

    def variable(self, name: str, default: Any) -> Any:
        """Return the value of an environment variable, `default` if it is unset, or UNCLEAR."""
        if name in self.withheld or _PER_PROCESS.match(name):
            return UNCLEAR
        self.consulted[f"${name}"] = repr(self.variables.get(name))
        return self.variables.get(name, default)

    def section_of(self, name: str, annotation: str, module: str) -> SettingsSection | None:
        """Return the section that a parameter or attribute stands for, by its annotation or verl's name for it; None for any other."""
        classes = [word for word in _WORD.findall(annotation) if word not in _OPEN]
        for word in classes:
            if homes := self._by_class().get(word):
                return SettingsSection(homes)
        match = _CONFIG.fullmatch(name)
        if match is None or not self.tree or (classes and not any(map(_CLASS.fullmatch, classes))):
            return None
        if match[1] is None:
            return self._whole(module) if not classes else self._called(_CLASS.fullmatch(classes[0]))
        return self._called(match)

    def _whole(self, module: str) -> SettingsSection:
        """Return the section that verl names just `config`: a worker's part in a worker, the whole in a trainer."""
        in_rollout = ".workers.rollout" in module or ".sharding_manager" in module or ".utils.vllm" in module
        return SettingsSection((ROLLOUT, _SHARED, "") if in_rollout else ("", _SHARED))

    def _called(self, match: re.Match[str] | None) -> SettingsSection | None:
        name = match[1].lower() if match else ""
        for home in (f"{_SHARED}.{name}", f"{ROLLOUT}.{name}", name):
            if name and isinstance(lookup(self.tree, home), Mapping):
                return SettingsSection((home,))
        return None

    def _by_class(self) -> dict[str, tuple[str, ...]]:
        """Return the sections of each configuration class named by `_target_`; only the actor's and rollout's if it has any."""
        if self._classes is None:
            found: dict[str, list[str]] = {}
            for key, target in _targets(self.tree, ""):
                found.setdefault(target.rpartition(".")[2], []).append(key)
            self._classes = {}
            for name, keys in found.items():
                shared = [key for key in keys if key.startswith(_SHARED)]
                if len(shared or keys) == 1:
                    self._classes[name] = tuple(shared or keys)
        return self._classes


def switched_on(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the optional parts of verl that keys with these values switch on."""
    texts = [f"{key} {value}".lower() for key, value in given.items() if value and "${" not in str(value)]
    return tuple(word for word in _FEATURES if any(word in text for text in texts))


def _targets(tree: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(tree, Mapping):
        target = tree.get("_target_")
        if isinstance(target, str):
            yield key, target
        for name, inner in tree.items():
            yield from _targets(inner, f"{key}.{name}".strip("."))
