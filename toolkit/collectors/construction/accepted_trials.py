"""Other settings that may heal a fault of the construction, the most likely first."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.construction.accepted import Setting
from verl_doctor.toolkit.collectors.construction.construction import Built
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE
from verl_doctor.toolkit.sources.python.source import parsed, read, walk
from verl_doctor.toolkit.text import with_part

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]*\w)")
_QUOTED = re.compile(r"['\"`]([A-Za-z][\w.@-]{0,60})['\"`]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DIVIDES = re.compile(r"divi[sd]|multipl|%")
_SIMILAR = 0.6
_MOST_NUMBERS, _MOST_NAMES = 6, 6  # values of a key
_MOST_FAR = 8  # words of other sections than the stage's
_FRAMES, _INNERMOST = 4, 2  # of verl, the engine and the user; of all
_AROUND = 3  # lines
_IMPORTS = frozenset({"ImportError", "ModuleNotFoundError"})
_FIXED = re.compile(
    r"(?:^|\.)(?:model\.path|train_files|val_files|custom_reward_function\.path|custom_cls\.path"
    r"|adv_estimator|n_gpus_per_node|nnodes)$"
)
"""What the job is about, and the machine: such settings are never left out, nor replaced."""
_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "data sets": ("data.",),
    "first batch": ("data.",),
    "first validation batch": ("data.",),
    "model": ("actor_rollout_ref.model.", "model."),
    "critic's model": ("critic.",),
    "engine": ("actor_rollout_ref.rollout.",),
    "agent loops": ("actor_rollout_ref.rollout.", "data.", "actor_rollout_ref.model."),
    "agent loops in validation": ("actor_rollout_ref.rollout.", "data.", "actor_rollout_ref.model."),
    "reward manager": ("reward",),
    "reward": ("reward",),
    "weights": ("actor_rollout_ref.model.", "model."),
    "training engine": (
        "actor_rollout_ref.actor.",
        "actor_rollout_ref.model.",
        "critic.",
        "optim.",
        "engine.",
        "model.",
    ),
    "world": (
        "actor_rollout_ref.actor.",
        "actor_rollout_ref.model.",
        "critic.",
        "optim.",
        "engine.",
        "model.",
    ),
    "algorithm": ("algorithm.", "actor_rollout_ref.actor."),
    "resuming": ("trainer.",),
    "trackers": ("trainer.",),
}
"""The sections in which the cause of a stage's fault usually is."""
_OF_ROWS = frozenset(
    {
        "data sets",
        "first batch",
        "first validation batch",
        "agent loops",
        "agent loops in validation",
        "micro batches",
        "micro batches of talks",
    }
)
"""Stages that meet the first rows only.

The numbers in their messages are lengths of these rows, and other rows are longer.
"""


def trials(
    fault: Built, configuration: Configuration, folder: Path, done: Iterable[Setting] = ()
) -> Iterator[Setting]:
    """Yield settings to try, each once, for a job that starts in `folder`.

    Keys that are `done` stay as they are.
    """
    changed = {setting.key for setting in done}
    words = [
        word
        for word in configuration.overrides
        if _is_editable(word) and configuration.override_of(word.key) is word
    ]
    if not words:
        return
    hints = _Hints(fault, configuration, folder)
    named = _named(fault, words, hints)
    first = dict.fromkeys([*([fault.key] if fault.key else []), *named])
    seen: set[str] = set()
    for setting in chain(_of_keys(first, configuration, hints), _others(fault, words, first)):
        is_new = (text := repr(setting)) not in seen
        if is_new and setting.key not in changed and not _FIXED.search(setting.key):
            seen.add(text)
            yield setting


def _of_keys(keys: Iterable[str], configuration: Configuration, hints: _Hints) -> Iterator[Setting]:
    """Yield other values for the keys that the fault names.

    First come what was meant and verl's defaults of all keys, then what else may fit.
    """
    later: list[Setting] = []
    for key in keys:
        word = configuration.override_of(key)
        if word is not None and not _is_editable(word):
            continue
        if word is None and (not configuration.has(key) or isinstance(configuration.get(key), Mapping)):
            continue
        if len(whole := _whole_names(key, configuration, hints)) > 1:
            continue
        if whole:
            yield Setting(key, whole[0])
            continue
        near, far = _values(key, configuration, hints)
        yield from (Setting(key, value) for value in near)
        if word is not None:
            yield Setting(key, left_out=True)
        later += [Setting(key, value) for value in far]
    yield from later


def unclear(fault: Built, configuration: Configuration, folder: Path) -> tuple[str, ...]:
    """Return the names of which the value at fault is a part, if there are several: any may be meant."""
    hints = _Hints(fault, configuration, folder)
    named = _named(fault, configuration.overrides, hints)
    found = (_whole_names(key, configuration, hints) for key in [*([fault.key] if fault.key else []), *named])
    return tuple(next((names for names in found if len(names) > 1), ()))


def _whole_names(key: str, configuration: Configuration, hints: _Hints) -> list[str]:
    """Return the names in the message or the code of which a key's value is a part.

    Only these are candidates: the nearest name in letters may be the opposite, and so may verl's default.
    """
    value = configuration.get(key)
    if not isinstance(value, str) or not value:
        return []
    return with_part(value, dict.fromkeys([*hints.names_beside(key), *hints.names]))


def _others(fault: Built, words: Sequence[OverrideWord], first: Iterable[str]) -> Iterator[Setting]:
    """Yield settings without a word of the script, those of the stage's own sections first.

    A missing package, and what the user's own code raises, is rarely due to a setting.
    """
    if fault.kind in _IMPORTS or (fault.frames and fault.frames[-1].of == "user"):
        return
    usual = _SECTIONS.get(fault.stage, ())
    named = set(first)
    left = sorted((word for word in words if word.key not in named), key=lambda word: word.sign == "")
    near = [word for word in left if word.key.startswith(usual)] if usual else []
    far = [word for word in left if word not in near]
    yield from (Setting(word.key, left_out=True) for word in [*near, *far[:_MOST_FAR]])


class _Hints:
    """What the exception and the code around it name: numbers, names, and whether something has to divide."""

    def __init__(self, fault: Built, configuration: Configuration, folder: Path) -> None:
        self.text = fault.text
        own = [frame for frame in fault.frames if frame.of][-_FRAMES:]
        last = [frame for frame in fault.frames[-_INNERMOST:] if frame not in own]
        self.places = [(frame.file, frame.line) for frame in [*own, *last]]
        lines = [line for place in self.places for line in _around(*place)]
        self.code = set(_NAME.findall("\n".join(lines)))
        self.longest = _allowed(configuration) if fault.stage in _OF_ROWS else None
        self.numbers = [float(text) for text in _NUMBER.findall(fault.text)]
        raising = _around(*self.places[-1], 0) if self.places else []
        self.divides = bool(_DIVIDES.search(fault.text) or any("%" in line for line in raising))
        constants = [name for place in self.places[-2:] for name in _constants(*place)]
        self.names = list(dict.fromkeys([*_QUOTED.findall(fault.text), *constants]))
        self._configuration, self._folder = configuration, folder

    def names_beside(self, key: str) -> list[str]:
        """Return the classes and functions of the Python files that settings of the same section name."""
        section = key.rpartition(".")[0]
        files = (
            word.value
            for word in self._configuration.overrides
            if word.key.rpartition(".")[0] == section and isinstance(word.value, str)
        )
        return [name for file in files if file.endswith(".py") for name in _defined(self._folder / file)]


def _allowed(configuration: Configuration) -> list[int]:
    """Return the tokens of the longest row that the job allows, if that is known."""
    lengths = [configuration.get(f"data.max_{part}_length") for part in ("prompt", "response")]
    return [sum(lengths)] if all(type(length) is int for length in lengths) else []


def _named(fault: Built, words: Sequence[OverrideWord], hints: _Hints) -> list[str]:
    """Return the keys of the words that the message or the code names, the best proof first.

    Words whose value the message repeats count as well.
    """
    texts = set(_NAME.findall(fault.text))
    proofs: dict[str, int] = {}
    for word in words:
        last = word.key.rpartition(".")[2]
        proof = 4 * (word.text == fault.word) + 2 * _repeats(fault.text, word.value)
        proof += 2 * (last in texts) + (last in hints.code)
        if proof:
            proofs[word.key] = proof
    return sorted(proofs, key=lambda key: -proofs[key])


def _repeats(text: str, value: Any) -> bool:
    """Return whether a message has the value, or an entry of it, as a word. A single digit proves nothing."""
    if isinstance(value, Mapping):
        return any(_repeats(text, part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return any(_repeats(text, part) for part in value)
    if value is None or isinstance(value, bool) or len(str(value)) == 1:
        return False
    return re.search(rf"(?<![\w.]){re.escape(str(value))}(?![\w.]*\w)", text) is not None


def _values(key: str, configuration: Configuration, hints: _Hints) -> tuple[list[Any], list[Any]]:
    """Return other values for a key: those that come before verl's default, and those that come after all."""
    value, default = configuration.get(key), configuration.default(key)
    if isinstance(value, bool):
        return [not value], []
    if isinstance(value, (int, float)):
        return _numbers(value, default, hints)
    if isinstance(value, list):
        names = [entry for entry in value if isinstance(entry, str) and len(value) > 1]
        return [[other for other in value if other is not entry] for entry in names], []
    if isinstance(value, Mapping):
        entries = sorted(value, key=lambda name: not _repeats(hints.text, {name: value[name]}))
        rest = [{name: part for name, part in value.items() if name != entry} for entry in entries]
        return (rest if len(value) > 1 else []), []
    if isinstance(value, str):
        return _names(value, [*hints.names_beside(key), *hints.names], _elsewhere(key, configuration))
    return [], _elsewhere(key, configuration)


def _numbers(value: float, default: Any, hints: _Hints) -> tuple[list[Any], list[Any]]:
    if hints.longest is not None and isinstance(value, int):
        return [length for length in hints.longest if length > value], []
    whole = isinstance(value, int) and not isinstance(default, float)  # YAML and people write 1 for 1.0
    numbers = [int(number) if whole else number for number in hints.numbers if not whole or number % 1 == 0]
    beyond = [number + 1 for number in numbers] if whole else []  # a limit may be exclusive
    sizes = {int(number) for number in numbers if number > 0} | ({value} if whole and value > 0 else set())
    divisors = {part for size in sizes for part in range(1, min(int(size), 4096) + 1) if size % part == 0}

    def near(others: Iterable[Any]) -> list[Any]:
        wanted = (other for other in dict.fromkeys(others) if other not in (value, default) and other >= 0)
        return sorted(wanted, key=lambda other: (abs(other - value), other))[:_MOST_NUMBERS]

    if whole and hints.divides:
        return near(divisors), near(numbers)
    return near(numbers), [*near(beyond), *near(divisors)] if whole else []


def _names(value: str, names: Iterable[str], elsewhere: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return the names that resemble the value, and the others."""
    near = {
        name: difflib.SequenceMatcher(None, value.lower(), name.lower()).ratio()
        for name in names
        if name != value
    }
    ordered = sorted(near, key=lambda name: -near[name])
    meant = [name for name in ordered if near[name] >= _SIMILAR]
    others = [name for name in ordered if near[name] < _SIMILAR]
    return meant[:_MOST_NAMES], [*(other for other in elsewhere if other != value), *others[:_MOST_NAMES]]


def _elsewhere(key: str, configuration: Configuration) -> list[Any]:
    """Return the values that the script gives to keys of the same name in other sections."""
    last = key.rpartition(".")[2]
    return [
        word.value
        for word in configuration.overrides
        if word.fate == "applied"
        and word.key != key
        and word.key.rpartition(".")[2] == last
        and isinstance(word.value, (int, str))
    ]


def _is_editable(word: OverrideWord) -> bool:
    return bool(
        word.key
        and word.fate == "applied"
        and not word.conditional
        and word.path != COMMAND_LINE
        and word.line
    )


def _around(path: str, line: int, lines: int = _AROUND) -> list[str]:
    source = read(Path(path))
    if not isinstance(source, bytes):
        return []
    return source.decode("utf-8", "replace").splitlines()[max(line - 1 - lines, 0) : line + lines]


def _constants(path: str, line: int) -> Iterator[str]:
    """Yield the texts in the innermost function around a line that look like names."""
    inner = max(
        (
            node
            for node in _tree_nodes(Path(path))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.lineno <= line <= (node.end_lineno or 0)
        ),
        key=lambda node: node.lineno,
        default=None,
    )
    for node in walk(inner) if inner else ():
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _QUOTED.fullmatch(f"'{node.value}'")
        ):
            yield node.value


def _defined(path: Path) -> list[str]:
    return [
        node.name
        for node in _tree_nodes(path, inner=False)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def _tree_nodes(path: Path, *, inner: bool = True) -> Iterable[ast.AST]:
    tree = parsed(path)
    if tree is None:
        return ()
    return walk(tree) if inner else tree.body
