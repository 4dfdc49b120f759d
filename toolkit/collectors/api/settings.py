"""The values that decide a job's path through verl: its configuration, and the variables that verl reads."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from verl_doctor.toolkit.sources.hydra.lookup import MISSING, UNDETERMINED, lookup
from verl_doctor.toolkit.sources.python.evaluate import COMPARE, UNCLEAR, applied

ROLLOUT: Final = "actor_rollout_ref.rollout"
_SHARED = "actor_rollout_ref"
# The keys that distinguish a job's paths, each of which is judged separately.
_OF_PATHS = frozenset({f"{ROLLOUT}.mode", f"{ROLLOUT}.name"})
_OPERATORS = {op.__name__: compare for op, compare in COMPARE.items()}
_TARGETS = "the classes of the sections"  # noted where a section was found by its class
_WORD = re.compile(r"[A-Za-z_]\w*")
_CONFIG = re.compile(r"_?(?:(\w+?)_)?(?:config|cfg|conf)")
_CLASS = re.compile(r"(?:HF|FSDP|Mcore|Megatron)?([A-Z]\w*?)Config")
# Annotations that leave open which section a parameter is.
_OPEN = frozenset(
    {"Any", "DictConfig", "ListConfig", "Mapping", "None", "Optional", "Union", "config", "dict"}
)
# Parts of verl that a setting switches on, by the word that names them in keys, values, modules and
# variables.
_FEATURES = ("fp8", "lora", "modelopt", "mtp", "qat", "replay", "torchao")
# Layers that only some models have, and number formats of which a part supports several.
_OF_SOME_MODELS = re.compile(r"moe|expert|w\d+a\d+|nvfp4")
# Variables that a scheduler, Ray or verl itself sets for each process.
_PER_PROCESS = re.compile(
    r"(?:CUDA|HIP|ROCR|ASCEND|LOCAL|MASTER|NCCL|OMPI|PMI|RAY|SLURM|WG|TORCHELASTIC)_|(?:LOCAL_)?RANK"
    r"|WORLD_SIZE"
)


@dataclass(frozen=True, slots=True)
class SettingsSection:
    """A part of the configuration, by the dotted keys where it may be; the first with a value counts."""

    homes: tuple[str, ...]


def is_true(key: str) -> str:
    """Return the name, in `Settings.consulted`, of the question whether a key has a true value."""
    return f"{key} is true"


def compares(key: str, op: type[ast.cmpop], constant: Any, *, key_is_left: bool) -> str:
    """Return the name, in `Settings.consulted`, of the comparison of a key with a constant.

    The result is "" if the comparison cannot be written down.
    """
    text = repr(constant)
    try:
        same = ast.literal_eval(text) == constant
    except (ValueError, SyntaxError):
        return ""
    return f"{key} {'left' if key_is_left else 'right'} {op.__name__} {text}" if same else ""


@dataclass(slots=True)
class Settings:
    """A composed configuration, and variables by name.

    `withheld` are variables that are set to unknown values.

    `chosen`: they come from a launch script, and are not verl's defaults alone. `program` is the file that
    reads them, "" for verl's own trainer; `features` are the optional parts that the script switches on.
    `consulted` are the keys and variables (`$NAME`) that were looked up. If only the truth of a key or its
    comparison with a constant decided, that is what is noted, so that another value with the same answer
    changes nothing.
    """

    tree: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    chosen: bool = False
    program: str = ""
    features: tuple[str, ...] = ()
    consulted: list[str] = field(default_factory=list)
    _aside: list[str] | None = None
    _classes: dict[str, tuple[str, ...]] | None = None

    def found(self, section: SettingsSection, key: str) -> tuple[str, Any]:
        """Return the dotted key at which a key of a section was found, and its value.

        The value is a Python value, a `SettingsSection`, UNCLEAR, or MISSING with "" as the key.
        """
        for home in section.homes:
            whole = f"{home}.{key}".strip(".")
            found = self.at(whole)
            if isinstance(found, Mapping):
                return whole, SettingsSection((whole,))
            if found is not MISSING:
                return whole, found
        return "", MISSING

    def at(self, key: str) -> Any:
        """Return the value of a dotted key in the tree, MISSING, or UNCLEAR."""
        if key in _OF_PATHS:
            return UNCLEAR
        self.note([key])
        found = lookup(self.tree, key) if key else self.tree
        return UNCLEAR if found is UNDETERMINED or found == "???" else found

    def is_equal(self, key: str, constant: Any) -> bool:
        """Return whether a key has this value, and note only that."""
        with self.apart():
            found = self.at(key)
        self.note([compares(key, ast.Eq, constant, key_is_left=True)])
        return bool(found == constant)

    def note(self, names: Iterable[str]) -> None:
        """Note what was consulted."""
        (self.consulted if self._aside is None else self._aside).extend(names)

    @contextlib.contextmanager
    def apart(self) -> Iterator[list[str]]:
        """Collect what is consulted in this block in a list of its own. The caller notes what decided."""
        before, self._aside = self._aside, []
        try:
            yield self._aside
        finally:
            self._aside = before

    @contextlib.contextmanager
    def for_good(self) -> Iterator[None]:
        """Note what is consulted in this block in `consulted` itself, also within `apart`.

        The result is kept for later uses.
        """
        before, self._aside = self._aside, None
        try:
            yield
        finally:
            self._aside = before

    def answer(self, name: str) -> str:
        """Return the answer to a name in `consulted`, as text."""
        with self.apart():
            if name.startswith("$"):
                return repr(self.variable(name[1:], None))
            if name == _TARGETS:
                return repr(sorted(_targets(self.tree, "")))
            key, _, test = name.partition(" ")
            found = self.at(key)
        if isinstance(found, Mapping):
            return "a section"
        if not test or found is MISSING or found is UNCLEAR:
            return repr(found)
        if test == "is true":
            return repr(bool(found))
        side, op, constant = test.split(" ", 2)
        values = [tuple(found) if isinstance(found, list) else found, ast.literal_eval(constant)]
        return repr(applied(_OPERATORS[op], *(values if side == "left" else reversed(values))))

    def leaves_out(self, module: str) -> bool:
        """Return whether a module belongs to an optional part of verl that the launch script leaves off."""
        parts = set(re.split(r"[._]", module.replace("replay_buffer", ""))).intersection(_FEATURES)
        return self.chosen and bool(parts) and parts.isdisjoint(self.features)

    def has_part(self, name: str) -> bool:
        """Return whether a function's dotted name belongs to a part that the script switches on.

        It must also belong to every model's layers.
        """
        words = set(re.split(r"[._]", name.lower()))
        return not words.isdisjoint(self.features) and not any(map(_OF_SOME_MODELS.search, words))

    def variable(self, name: str, default: Any) -> Any:
        """Return the value of an environment variable, `default` if it is unset, or UNCLEAR."""
        if _PER_PROCESS.match(name):
            return UNCLEAR
        self.note([f"${name}"])
        if name in self.withheld:
            return UNCLEAR
        return self.variables.get(name, default)

    def section_of(self, name: str, annotation: str, module: str) -> SettingsSection | None:
        """Return the section of a parameter or attribute, by annotation or verl's name; None for others."""
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
        """Return the section that verl calls `config`: a worker's part in a worker, all in a trainer."""
        in_rollout = ".workers.rollout" in module or ".sharding_manager" in module or ".utils.vllm" in module
        return SettingsSection((ROLLOUT, _SHARED, "") if in_rollout else ("", _SHARED))

    def _called(self, match: re.Match[str] | None) -> SettingsSection | None:
        name = match[1].lower() if match else ""
        for home in (f"{_SHARED}.{name}", f"{ROLLOUT}.{name}", name):
            self.note([home] if name else ())
            if name and isinstance(lookup(self.tree, home), Mapping):
                return SettingsSection((home,))
        return None

    def _by_class(self) -> dict[str, tuple[str, ...]]:
        """Return the sections of each configuration class named by `_target_`.

        If a class has sections of the actor and rollout, only those are returned.
        """
        self.note([_TARGETS])
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
