"""The nearest value that verl's validation accepts, found by evaluating its code again with other values."""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration, copied
from verl_doctor.toolkit.collectors.configuration.validation.validation import Raised
from verl_doctor.toolkit.sources.hydra.written import as_written
from verl_doctor.toolkit.sources.python.source import parsed, walk
from verl_doctor.toolkit.text import with_part

Judge = Callable[[Configuration], Raised | None]
"""Returns what is raised for a configuration."""

_MOST = 60  # configurations that are tried
_MOST_AFTER = 20  # when a value is found already
_OTHERS = 2  # further values
_MOST_OF_A_KEY = 2  # values of the same key
_SAME_RESULT = re.compile(
    r"(?:micro_batch_size(?:_per_gpu)?|parallel_size|max_token_len\w*|use_remove_padding|use_dynamic_bsz"
    r"|max_num_batched_tokens|max_num_seqs|max_model_len|enable_chunked_prefill|use_liger|load_format"
    r"|attn_implementation|n_gpus_per_node|nnodes|num_gpus|num_cpus|object_store_memory"
    r"|val_kwargs\.do_sample|return_raw_chat|attention_backend|gpu_memory_utilization|param_offload"
    r"|optimizer_offload)$"
)
_BATCH = "data.train_batch_size"  # which the others are made to fit
_MACHINE = ("n_gpus_per_node", "nnodes")  # what there is, not what is to be chosen
_SHARES = ("_p", "_ratio", "_utilization", "_fraction")
_NUMBER = re.compile(r"(?<![\w.])[1-9]\d{0,8}(?![\w.])")
_IS_ZERO = re.compile(r"[\w.]+ == 0")  # no remainder
_NAME = re.compile(r"[A-Za-z][\w-]{0,40}")


def with_nearest(
    raised: Raised,
    configuration: Configuration,
    judge: Judge,
    holds: Callable[[Configuration], bool] = lambda _: True,
) -> Raised:
    """Add the first values of the error's keys for which the code raises nothing and `holds` is satisfied.

    Where nothing satisfies both, the first that the code itself accepts is added: the next refusal is then
    judged in turn.
    """
    first: tuple[str, str] | None = None
    found: list[tuple[str, str]] = []
    per_key: Counter[str] = Counter()
    tried = 0
    for key, value in _trials(raised, configuration):
        if per_key[key] >= _MOST_OF_A_KEY:
            continue
        if len(found) > _OTHERS or tried >= (_MOST_AFTER if found else _MOST):
            break
        tried += 1
        changed = _with(configuration, key, value)
        if judge(changed) is not None:
            continue
        pair = key, _text(value)
        first = first or pair
        if holds(changed):
            found.append(pair)
            per_key[key] += 1
    if first is None:
        return raised
    key, value = found[0] if found else first
    return replace(raised, nearest_key=key, nearest=value, others=tuple(found[1:]))


def keeps_result(key: str) -> bool:
    """Whether a setting only decides where, and in pieces of what size, the same numbers are computed."""
    return _SAME_RESULT.search(key) is not None


def _trials(raised: Raised, configuration: Configuration) -> Iterator[tuple[str, Any]]:
    """Candidates key by key, those that the job sets first.

    Numbers and switches come before names, and what keeps the result comes before the rest.

    A name that the code itself contains is not misspelt: the numbers and switches of the conditions around
    come before it.
    """
    numbers = [int(number) for number in _NUMBER.findall(f"{raised.text} {raised.condition}")]
    numbers += [0] if _IS_ZERO.fullmatch(raised.condition) else []
    numbers += [value for key in raised.keys if type(value := configuration.get(key)) is int]
    names = _names(raised.read_from)
    right = [key for key in raised.keys if configuration.get(key) in names]
    wrong = sorted(
        (key for key in raised.keys if key not in right), key=lambda key: _rank(key, configuration)
    )
    # A value of the wrong type is not repaired by a switch around the code that stumbles over it: other code
    # reads it too.
    switches = () if raised.raised == "TypeError" else raised.around
    around = [key for key in switches if isinstance(configuration.get(key), (bool, int))]
    for key in [*wrong, *sorted(around, key=lambda key: _rank(key, configuration)), *right]:
        yield from ((key, value) for value in _values(key, configuration, numbers, names))


def _rank(key: str, configuration: Configuration) -> tuple[bool, ...]:
    unset = configuration.get(key) is None and key.endswith("_per_gpu")
    return (
        key.endswith(_MACHINE),
        configuration.override_of(key) is None and not unset,
        isinstance(configuration.get(key), str),
        not keeps_result(key),
        not unset,
        key == _BATCH,
    )


def _values(
    key: str, configuration: Configuration, numbers: Sequence[int], names: Sequence[str]
) -> Iterator[Any]:
    """Other values for a key, the nearest first."""
    value, default = configuration.get(key), configuration.default(key)
    if type(default) is int and key.endswith(_SHARES):  # YAML's 1
        default = float(default)
    if type(value) in (int, float) and (share := share_of_percent(value, default)) is not None:
        yield share
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, float):
        if type(default) is int:
            yield default
        others = {float(number) for number in (*numbers, default) if type(number) in (int, float)}
        yield from sorted(others - {value}, key=lambda number: abs(number - value))
    elif isinstance(value, int):
        sizes = {size for number in numbers for size in _divisors(number)} | {1}
        if 0 in numbers:
            yield 0
        sizes |= {default} if type(default) is int else set()
        yield from sorted(
            (size for size in sizes if size > 0 and size != value),
            key=lambda size: (size > value > 0, abs(size - value)),
        )
        if default is None or isinstance(default, list):
            yield [value]
    elif value is None and isinstance(default, dict):
        yield default
    elif value is None:
        yield from dict.fromkeys(
            [1] if "micro" in key else [*(number for number in numbers if number > 0), 1]
        )
    elif isinstance(value, list):
        yield from _lists(value, default, names)
    elif isinstance(value, str):
        if value.endswith("/") and value.strip("/"):
            yield value.rstrip("/")
        if isinstance(default, (int, float)):
            yield default
        yield from (name for name in _by_likeness(value, names) if name != value)
        if default in (None, MISSING):
            yield None
        elif isinstance(default, str) and default != value:
            yield default


def _lists(value: Sequence[Any], default: object, names: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the list with another entry, then verl's own list.

    The entry is verl's own in its place, or a name that the list does not have yet.
    """
    own = default if isinstance(default, list) else []
    others = [(place, entry) for place, entry in enumerate(own) if len(own) == len(value)]
    names = [name for name in names if name not in value]
    likely = [
        (_likeness(entry, name), place, name)
        for place, entry in enumerate(value)
        if isinstance(entry, str)
        for name in names
    ]
    others += [(place, name) for _, place, name in sorted(likely, key=lambda choice: -choice[0])]
    yield from ([*value[:place], other, *value[place + 1 :]] for place, other in others if other not in value)
    if own and own != value:
        yield own


def _by_likeness(text: str, names: Sequence[str]) -> list[str]:
    """Return the names in order of their likeness to a text, first those that contain it.

    If it is a part of one name, only that; of several, none: any of them may be meant.
    """
    if whole := with_part(text, names):
        return whole if len(whole) == 1 else []
    return sorted(names, key=lambda name: (text not in name, -_likeness(text, name)))


def _likeness(text: str, name: str) -> float:
    return difflib.SequenceMatcher(None, text, name).ratio()


def share_of_percent(value: float, default: object) -> float | None:
    """Return the share that a percentage means, where the default is a share.

    The result is None if it is not one, as for 1.5.
    """
    if isinstance(default, float) and 0 < default <= 1 and 10 <= value <= 100:
        return round(value / 100, 4)
    return None


def _divisors(number: int) -> Iterator[int]:
    return (size for size in range(1, min(number, 4096) + 1) if number % size == 0)


def _names(read_from: str) -> list[str]:
    """Return the string constants of the function that raised."""
    path, _, line = read_from.rpartition(":")
    tree = parsed(Path(path))
    if not isinstance(tree, ast.Module) or not line.isdigit():
        return []
    around = [
        node
        for node in walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= int(line) <= (node.end_lineno or 0)
    ]
    inner = max(around, key=lambda node: node.lineno, default=None)
    texts = (node.value for node in walk(inner) if isinstance(node, ast.Constant)) if inner else ()
    return list(dict.fromkeys(text for text in texts if isinstance(text, str) and _NAME.fullmatch(text)))


def _with(configuration: Configuration, key: str, value: Any) -> Configuration:
    """Return the configuration with another value for a key."""
    after = copied(configuration.after)
    *above, last = key.split(".")
    section = after
    for name in above:
        section = section.get(name) if isinstance(section, dict) else None
    if isinstance(section, dict):
        section[last] = value
    return replace(configuration, after=after)


def _text(value: Any) -> str:
    return as_written(value) if value is None or isinstance(value, dict) else str(value)
