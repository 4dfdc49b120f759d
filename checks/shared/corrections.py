"""What rules propose to write into a launch script, and which fix carries that out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypedDict

from verl_doctor.checks.shared.configuration import place
from verl_doctor.toolkit.collectors.configuration.configuration import Asked, Configuration
from verl_doctor.toolkit.rule import Correction, Rewrite

KEEPS_RESULT = "script-word"
CHANGES_RESULT = "script-word-changed"
_EDITABLE = frozenset({"applied", "chosen", "no such key", "already there", "not an override", "several values", "nothing to delete"})  # fmt: skip
# Settings that decide where and in what pieces the same numbers are computed.
_SAME_RESULT = re.compile(
    r"(?:micro_batch_size(?:_per_gpu)?|parallel_size|max_token_len\w*|use_remove_padding|max_num_batched_tokens|max_model_len"
    r"|enable_chunked_prefill|use_liger|load_format|attn_implementation|n_gpus_per_node|nnodes|num_gpus|num_cpus|object_store_memory"
    r"|val_kwargs\.do_sample|attention_backend|gpu_memory_utilization|param_offload|optimizer_offload)$"
)


class Healed(TypedDict, total=False):
    """The fields of a finding that a correction fills."""

    fix: str
    correction: Correction


def healed(code: str, correction: Correction | None) -> Healed:
    """The fields of a finding of this rule; none where nothing can be proposed."""
    if correction is None:
        return {}
    correction = replace(correction, code=code)
    return {"fix": CHANGES_RESULT if correction.effect else KEEPS_RESULT, "correction": correction}


def reworded(word: Asked, new: str | None, why: str = "", effect: str = "") -> Correction | None:
    """The correction that writes one word otherwise, or takes it out; None for one that stands in no file, or in a condition."""
    where = place(word)
    if where.line is None or word.conditional or word.fate not in _EDITABLE:
        return None
    return Correction("", (Rewrite(word.text, new, where),), why, effect)


def settings(
    there: Configuration, values: Mapping[str, Any], why: str = "", effect: str | None = None
) -> Correction | None:
    """The correction that gives keys other values, and takes away those whose value is `LEAVE_OUT`.

    What it changes of the training is told by the keys, unless `effect` does.
    """
    rewrites: list[Rewrite] = []
    for key, value in values.items():
        word = there.asked_for(key)
        if word is None:
            if value is LEAVE_OUT or not _has_file(there.overrides) or _is_broken(there, key):
                return None
            sign = "" if there.has(key) else "+"
            rewrites.append(Rewrite("", f"{sign}{key}={as_written(value)}"))
            continue
        head = word.text.partition("=")[0]
        new = None if value is LEAVE_OUT else f"{head}={as_written(value)}"
        correction = reworded(word, new)
        if correction is None:
            return None
        rewrites += correction.rewrites
    return Correction("", tuple(rewrites), why, effect_of(there, values) if effect is None else effect)


LEAVE_OUT = object()
"""In place of a value: the key is not to be set."""


def effect_of(there: Configuration, values: Mapping[str, Any]) -> str:
    """What other values of these keys change of the training, in words; "" for nothing."""
    changed = [
        f"{key} is {_shown(there.default(key) if value is LEAVE_OUT else value)} instead of {_shown(there.get(key))}"
        for key, value in values.items()
        if not _SAME_RESULT.search(key)
    ]
    return f"this changes the training: {'; '.join(changed)}" if changed else ""


def as_written(value: Any) -> str:
    """A value in Hydra's grammar."""
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{','.join(map(as_written, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _shown(value: Any) -> str:
    return "verl's default" if type(value) is object else as_written(value)


def _is_broken(there: Configuration, key: str) -> bool:
    """Whether a word speaks of the key that Hydra does not take: that has to be mended first."""
    return any(key in word.text for word in there.overrides if word.fate not in {"applied", "chosen"})


def _has_file(words: Iterable[Asked]) -> bool:
    """Whether the command's words stand in a file, to which more can be added."""
    return any(place(word).line is not None and not word.conditional for word in words)
