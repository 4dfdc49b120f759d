"""CFG125: verl's validation raises an error for the job's values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from verl_doctor.checks.shared.configuration import configured, place, release
from verl_doctor.checks.shared.corrections import LEAVE_OUT, effect_of, healed, reworded, settings
from verl_doctor.toolkit.collectors.configuration.configuration import (
    MISSING,
    Configuration,
    OverrideWord,
)
from verl_doctor.toolkit.collectors.configuration.validation.validation import Raised, Validation
from verl_doctor.toolkit.rule import EVERY_JOB, Correction, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.sources.hydra.written import as_written

_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")
_SIGNS = re.compile(r"[-_ ]")
_MODE = "actor_rollout_ref.actor.loss_agg_mode"
_TOKENS = "actor_rollout_ref.rollout.max_num_batched_tokens"
_REFUSED = Validation(
    (
        Raised(
            raised="ValueError",
            text="Invalid loss_agg_mode: token_mean",
            read_from="/env/verl/workers/config/actor.py:220",
            condition="self.loss_agg_mode not in valid_loss_agg_modes",
            keys=(_MODE,),
            phase="validation",
        ),
    )
)
_SEQUENCES = Validation(
    (
        Raised(
            raised="ValueError",
            text="max_num_batched_tokens (16) must be greater than or equal to max_num_seqs (256).",
            read_from="/env/vllm/config/scheduler.py:329",
            condition="self.max_num_batched_tokens < self.max_num_seqs",
            keys=(_TOKENS,),
            phase="engine",
            nearest_key=_TOKENS,
            nearest="256",
            library="vllm",
        ),
    )
)
_BARE = Validation(
    (
        Raised(
            raised="AssertionError",
            text="",
            read_from="/env/verl/workers/config/optimizer.py:123",
            condition="self.style in ['constant']",
            keys=("optim.style",),
            phase="workers",
        ),
    )
)


def _examples() -> list[Example]:
    return [
        Example("verl accepts the configuration", (*configured(), Validation())),
        Example(
            "a value that verl does not have",
            (*configured(f"+{_MODE}=token_mean"), _REFUSED),
            "Invalid loss_agg_mode: token_mean",
        ),
        Example("fewer tokens than sequences", (*configured(f"{_TOKENS}=16"), _SEQUENCES), "vLLM refuses"),
        Example(
            "an assertion without a message",
            (*configured(), _BARE),
            "the assertion self.style in ['constant'] fails",
        ),
    ]


@check(
    "CFG125",
    phase="validation",
    requires=("CFG101", "CFG102", "CFG103", "CFG108", "CFG109", "CFG115"),
    examples=_examples,
    since="0.2",
)
def verl_would_refuse_config(configuration: Configuration, validation: Validation) -> Iterator[Finding]:
    """verl's validation raises an error for the job's values.

    ## Why it matters
    The same code runs when the job starts: `validate_config`, the classes that verl builds from sections, the
    data set, and the checks of vLLM and torch on the values that verl passes on. In some releases it runs
    after Ray is up. The job ends there.

    ## How to fix
    Follow verl's message. The code was not run: verl-doctor read it and evaluated it with the job's values,
    as far as they are known.
    """
    for raised in _distinct(configuration, validation.raised):
        words = [word for key in raised.keys if (word := configuration.override_of(key)) is not None]
        shown = [_setting(configuration, key) for key in raised.keys[:6]]
        correction = _correction(configuration, raised)
        yield Finding(
            (
                f"{_whose(raised) if raised.library else release(configuration)} refuses "
                f"{', '.join(shown) or 'these values'}: {_error_text(raised)}"
            ),
            Evidence(
                found=", ".join(shown) or raised.condition,
                wanted=f"not {raised.condition}" if raised.text and raised.condition else "",
                read_from=raised.read_from,
            ),
            location=place(words[-1]) if words else None,
            remedy=_remedy(configuration, raised, words[-1].key if words else ""),
            phase=raised.phase,
            stops=(EVERY_JOB,),
            subject=Subject(
                "setting", words[-1].key if words else next(iter(raised.keys), configuration.name)
            ),
            **healed("CFG125", correction),
        )


def _correction(configuration: Configuration, raised: Raised) -> Correction | None:
    """The nearest value that the same code accepts, and the next ones.

    A name that differs only in punctuation is what was meant. Where several values would do, each is a choice
    that the user has to agree to.
    """
    deleted = next((word for word in configuration.overrides if _deletes(word, raised)), None)
    if deleted is not None:
        effect = f"{deleted.key} has verl's default again: {as_written(configuration.default(deleted.key))}"
        return reworded(deleted, None, effect=effect)
    if unknown := _unknown_argument(configuration, raised):
        why = f"{_whose(raised)} has no such argument"
        return settings(configuration, {unknown: LEAVE_OUT}, why)
    if not raised.nearest_key:
        return None
    nearest = _with_value(configuration, raised, raised.nearest_key, raised.nearest)
    others = (_with_value(configuration, raised, key, value) for key, value in raised.others)
    return nearest and replace(nearest, others=tuple(filter(None, others)))


def _unknown_argument(configuration: Configuration, raised: Raised) -> str:
    """Return the key of the user's own that is passed on as an argument which does not exist; "" for none."""
    found = _UNEXPECTED.search(raised.text)
    own = (key for key in raised.keys if configuration.override_of(key) and not configuration.has(key))
    return next((key for key in own if found and key.rpartition(".")[2] == found[1]), "")


def _deletes(word: OverrideWord, raised: Raised) -> bool:
    """Return whether a word removes a key that verl reads."""
    return word.sign == "~" and word.fate == "applied" and word.key in raised.keys


def _with_value(configuration: Configuration, raised: Raised, key: str, value: str) -> Correction | None:
    old = configuration.get(key)
    meant = isinstance(old, str) and _as_meant(old) == _as_meant(value)
    why = f"{value} is the nearest value that {_whose(raised)} accepts for {key}"
    new = ast.literal_eval(value) if isinstance(old, list) and value.startswith("[") else value
    if old is None and isinstance(configuration.default(key), Mapping):
        new = LEAVE_OUT
    if meant:
        return settings(configuration, {key: new}, why, "")
    changed = effect_of(configuration, {key: new})
    also = [f"{name}={other}" for name, other in _accepted(raised) if (name, other) != (key, value)]
    choice = f"this is a choice: {' or '.join(also)} would do too" if also else ""
    return settings(configuration, {key: new}, why, "; ".join(filter(None, (changed, choice))))


def _accepted(raised: Raised) -> Iterator[tuple[str, str]]:
    """Yield the keys, each with a value that the same code accepts, the nearest first."""
    if raised.nearest_key:
        yield raised.nearest_key, raised.nearest
    yield from raised.others


def _as_meant(text: str) -> str:
    """The text without what names may differ in, and without the slash at the end of a folder's path."""
    return text.rstrip("/") if "/" in text else _SIGNS.sub("", text.lower())


def _whose(raised: Raised) -> str:
    """Whose code refuses the values."""
    return {"": "verl's own code", "vllm": "vLLM"}.get(raised.library, raised.library)


def _distinct(configuration: Configuration, raised: Iterable[Raised]) -> Iterable[Raised]:
    """Each refusal once.

    The reason: verl builds and checks some sections for several workers, and some take their values from
    others.
    """
    first: dict[tuple[object, ...], Raised] = {}
    for refusal in sorted(raised, key=lambda refusal: not any(map(configuration.override_of, refusal.keys))):
        is_own = any(map(configuration.override_of, refusal.keys))
        same = (refusal.raised, refusal.text or refusal.condition, refusal.read_from)
        if is_own or same not in first:
            first.setdefault((*same, refusal.keys), refusal)
            first.setdefault(same, refusal)
    return dict.fromkeys(first.values())


def _remedy(configuration: Configuration, raised: Raised, key: str) -> str:
    """All proposals: the fix applies the first that breaks nothing else."""
    if unknown := _unknown_argument(configuration, raised):
        return f"leave out {unknown}"
    proposed = [
        f"{proposed}={value}"
        for proposed, value in _accepted(raised)
        if _with_value(configuration, raised, proposed, value)
    ]
    if proposed:
        values = "value" if len(proposed) == 1 else "values"
        return (
            f"set {' or '.join(proposed)}, the nearest {values} that "
            f"{_whose(raised) if raised.library else 'verl'} accepts"
        )
    return f"change {key}" if key else "follow the message"


def _error_text(raised: Raised) -> str:
    if raised.text:
        return f"{raised.raised}: {raised.text}"
    return f"the assertion {raised.condition} fails" if raised.raised == "AssertionError" else raised.raised


def _setting(configuration: Configuration, key: str) -> str:
    value = configuration.get(key)
    if value is MISSING:
        return f"a configuration without {key}"
    return f"{key}=null" if value is None else f"{key}={value}"
