"""CFG109: a value of another type than the one that it replaces."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verl_doctor.checks.shared.configuration import GPUS, NODES, configured, place, release, tree_of
from verl_doctor.checks.shared.corrections import healed, reworded
from verl_doctor.toolkit.collectors.configuration.config_classes import ConfigClasses
from verl_doctor.toolkit.collectors.configuration.configuration import (
    MISSING,
    UNDETERMINED,
    Configuration,
    OverrideWord,
)
from verl_doctor.toolkit.collectors.configuration.roles import is_read
from verl_doctor.toolkit.collectors.configuration.validation.validation import Validation
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import (
    EVERY_JOB,
    Correction,
    Evidence,
    Example,
    Finding,
    Phase,
    Severity,
    Subject,
    check,
)
from verl_doctor.toolkit.sources.hydra.written import as_written
from verl_doctor.toolkit.text import without_middle

_SWITCHES = {
    "yes": True,
    "on": True,
    "true": True,
    "y": True,
    "no": False,
    "off": False,
    "false": False,
    "n": False,
}
_NAMES = {"bool": "True or False", "int": "an integer", "float": "a number", "str": "a text"}
_SLIP = 0.75  # the similarity from which a text is a misspelt True or False
_CHECKPOINTS = "actor_rollout_ref.model.enable_gradient_checkpointing"
_TRACKERS = "trainer.logger"
_NOTHING = "None"
# Keys that count something. Others whose default happens to be 0 or 1, such as entropy_coeff and top_p,
# accept fractions.
_COUNTS = re.compile(
    r"(?:^|\.)(?:n|nnodes|num_\w+|max_num_\w+|(?!lr_warmup_)\w+_(?:size|per_gpu|per_node|epochs|steps"
    r"|freq|length|len|workers|rank|samples))$"
)
# Sections of which every job with rollouts reads a part: a word in their place ends it.
_READ = re.compile(
    r"reward\.(?:reward_manager|custom_reward_function)|data(?:\.custom_cls)?|trainer|algorithm"
    r"|actor_rollout_ref(?:\.(?:model|actor|rollout)(?:\.(?:optim|checkpoint|policy_loss|val_kwargs"
    r"|agent|multi_turn))?)?"
)


def _examples() -> list[Example]:
    return [
        Example(
            "values of the same types",
            configured("trainer.nnodes=2", "actor_rollout_ref.actor.optim.lr=1", "data.train_files=[a,b]"),
        ),
        Example(
            "a fraction where the default is 0", configured("actor_rollout_ref.actor.entropy_coeff=0.001")
        ),
        Example("null is fine everywhere", configured("trainer.nnodes=null")),
        Example("an unknown value", configured("trainer.nnodes=${oc.env:N}")),
        Example("False counts as 0, for Python too", configured("trainer.test_freq=False")),
        Example("a text that a later word replaces", configured("trainer.nnodes=two", "trainer.nnodes=2")),
        Example(
            "a number that a later word replaces",
            configured("trainer.nnodes=2", "trainer.nnodes=two"),
            "must be an integer",
        ),
        Example("a text for a number", configured("trainer.nnodes=two"), "must be an integer"),
        Example(
            "a fraction for an integer",
            configured("data.train_batch_size=1e3"),
            "must be an integer, not 1000.0",
        ),
        Example(
            "a text for a boolean",
            configured("actor_rollout_ref.rollout.enforce_eager=yes"),
            "must be True or False",
        ),
        Example(
            "a misspelt boolean",
            configured("actor_rollout_ref.rollout.enforce_eager=Ture"),
            "must be True or False",
        ),
        Example("a value for a section", configured("actor_rollout_ref.actor=dp"), "is a section"),
        Example(
            "a switch for a section that has one",
            configured("skip=True", tree={"skip": {"enable": False}}),
            "is a section",
        ),
        Example(
            "a word for a section that every job reads",
            configured("data=mine", tree={"data": {"train_batch_size": 2}}),
            "is a section",
        ),
        Example(
            "a word for a mapping",
            configured("data.template_kwargs=thinking", tree={"data": {"template_kwargs": {}}}),
            "data.template_kwargs must be a mapping, not thinking",
        ),
        Example(
            "a mapping",
            configured("data.template_kwargs={thinking:False}", tree={"data": {"template_kwargs": {}}}),
        ),
        Example(
            "one rank for a list",
            configured("profiler.ranks=0", tree={"profiler": {"ranks": []}}),
            "must be a list, not 0",
        ),
        Example(
            "warm-up of less than a step",
            configured("optim.lr_warmup_steps=0.1", tree={"optim": {"lr_warmup_steps": -1}}),
        ),
        Example(
            "a share of the samples",
            configured("data.train_max_samples=0.5", tree={"data": {"train_max_samples": -1}}),
            "must be an integer, not 0.5",
        ),
        Example("a tracker that is no list", configured("trainer.logger=console")),
        Example("a number for a list", configured("trainer.logger=0.9"), "must be a list"),
        Example(
            "a text, which the class allows",
            (
                *configured("actor_rollout_ref.actor.entropy_coeff=low_high"),
                ConfigClasses(declared={"actor_rollout_ref.actor.entropy_coeff": ("str", "float")}),
            ),
        ),
        Example(
            "a text where the class accepts an integer or nothing",
            (*configured("critic.enable=some"), ConfigClasses(declared={"critic.enable": ("int", "None")})),
            "must be an integer or null, not some",
        ),
        Example(
            "what only another engine reads",
            (
                *configured("actor_rollout_ref.actor.optim.lr=high"),
                ConfigClasses(unread=("actor_rollout_ref.actor.optim.lr",)),
            ),
            "must be a number, not high",
        ),
        Example(
            "null, which the class allows",
            (*configured(f"+{_CHECKPOINTS}=null"), ConfigClasses(converted={_CHECKPOINTS: ("bool", "None")})),
        ),
        Example(
            "null that the server refuses",
            (*configured(f"+{_CHECKPOINTS}=null"), ConfigClasses(converted={_CHECKPOINTS: ("bool",)})),
            "must not be null: True or False is required",
        ),
        Example(
            "a text that the server refuses",
            (*configured(f"+{_CHECKPOINTS}=Ture"), ConfigClasses(converted={_CHECKPOINTS: ("bool",)})),
            "must be True or False, not Ture: the rollout's server refuses it",
        ),
        Example(
            "a text that the server converts",
            (*configured(f"+{_CHECKPOINTS}=yes"), ConfigClasses(converted={_CHECKPOINTS: ("bool",)})),
        ),
        Example(
            "a number as a text that the server converts",
            (*configured(f"+{_CHECKPOINTS}='1'"), ConfigClasses(converted={_CHECKPOINTS: ("bool",)})),
        ),
        Example(
            "a fraction as a text that the server refuses",
            (*configured(f"+{_CHECKPOINTS}='1.0'"), ConfigClasses(converted={_CHECKPOINTS: ("bool",)})),
            "must be True or False, not 1.0: the rollout's server refuses it",
        ),
        Example(
            "null for a number that verl uses",
            (
                *configured("trainer.nnodes=null"),
                ConfigClasses(calculated={"trainer.nnodes": "/env/verl/trainer/x.py:7"}),
            ),
            "trainer.nnodes must not be null: the job uses it without a check",
        ),
        Example("Python's None", configured("critic.enable=None"), "the text None"),
    ]


@check("CFG109", phase="validation", examples=_examples)
def config_value_of_wrong_type(
    configuration: Configuration, validation: Validation | Unknown, classes: ConfigClasses | Unknown
) -> Iterator[Finding]:
    """A value has a different type from the default that it replaces.

    ## Why it matters
    Hydra accepts it. The job stops later, far from the cause, or continues with an unintended value: `1e3` is
    not an integer, and the texts `no` and `None` are both true in Python. What the job may never read, and a
    text in place of a truth value, which Python accepts, are only warnings.

    ## How to fix
    Write integers without an exponent or a fraction, booleans as `True` or `False`, nothing as `null`, and
    lists as `[a,b]`.
    """
    for word in configuration.overrides:
        is_last = configuration.override_of(word.key) is word  # a later word for the same key replaces it
        if word.fate == "applied" and word.key and is_last and not word.conditional and not word.foreseen:
            types = () if isinstance(classes, Unknown) else classes.declared.get(word.key, ())
            calculated = "" if isinstance(classes, Unknown) else classes.calculated.get(word.key, "")
            refused = _refused_by_server(word, classes)
            wanted = refused or _wanted(word, configuration, types)
            if calculated:
                wanted = f"{word.key} must not be null: the job uses it without a check"
            if wanted:
                yield Finding(
                    wanted,
                    Evidence(
                        found=word.text,
                        wanted=f"something like {_plain(_default(word, configuration))}",
                        read_from=calculated or configuration.origins.get(word.key, tree_of(configuration)),
                    ),
                    location=place(word),
                    remedy=_remedy(word, _default(word, configuration)),
                    severity=None if refused or calculated else _severity(word, configuration, classes),
                    phase=_phase_of_use(word.key)
                    if calculated
                    else "engine"
                    if refused
                    else _phase(word, validation),
                    stops=(EVERY_JOB,) if refused or calculated else (),
                    subject=Subject("setting", word.key),
                    **healed("CFG109", _correction(word, configuration)),
                )


def _wanted(word: OverrideWord, configuration: Configuration, types: Sequence[str]) -> str:
    """What is wrong with the value; "" if nothing. `types` are those that verl's class declares."""
    value, default = word.value, _default(word, configuration)
    if value == _NOTHING:
        return f"{word.key} is set to the text None; in Hydra, nothing is null"
    if type(value).__name__ in types:
        return ""
    is_text = isinstance(value, str) and "${" not in value
    if default is None and is_text and {"None"} < {*types} <= {"int", "float", "None"}:
        return (
            f"{word.key} must be {'an integer' if 'int' in types else 'a number'} or null, not "
            f"{_plain(value)}"
        )
    if (
        value is None
        or default is None
        or default in (MISSING, UNDETERMINED)
        or (isinstance(value, str) and "${" in value)
    ):
        return ""
    shown = _plain(value)
    if isinstance(default, bool):
        return "" if isinstance(value, (bool, int)) else f"{word.key} must be True or False, not {shown}"
    if isinstance(default, int):
        if isinstance(value, float) and not _COUNTS.search(word.key):
            return ""
        return "" if isinstance(value, int) else f"{word.key} must be an integer, not {shown}"
    if isinstance(default, float):
        return "" if isinstance(value, (int, float)) else f"{word.key} must be a number, not {shown}"
    if isinstance(default, list) and isinstance(value, (int, float)):
        return f"{word.key} must be a list, not {shown}"
    if default == {} and not isinstance(value, dict):
        return f"{word.key} must be a mapping, not {shown}"
    if isinstance(default, Mapping) and not isinstance(value, dict):
        return (
            f"{word.key} is a section of {release(configuration)}'s configuration, but {shown} would "
            "replace it"
        )
    return ""


def _refused_by_server(word: OverrideWord, classes: ConfigClasses | Unknown) -> str:
    """What is wrong with a value that the rollout's server converts to a declared type; "" if nothing."""
    types = () if isinstance(classes, Unknown) else classes.converted.get(word.key, ())
    if not {*types} & {"bool", "int", "float", "str"} or "None" in types:
        return ""
    if word.value is None:
        return (
            f"{word.key} must not be null: {_NAMES.get(types[0], 'a value')} is required where the "
            "rollout's server starts"
        )
    is_text = isinstance(word.value, str) and "${" not in word.value
    if types == ("bool",) and is_text and not _is_switch(word.value):
        return f"{word.key} must be True or False, not {_plain(word.value)}: the rollout's server refuses it"
    return ""


def _is_switch(text: str) -> bool:
    """Return whether OmegaConf converts a text to True or False: a word for it, or an integer."""
    try:
        int(text)
    except ValueError:
        return text.lower() in _SWITCHES
    return True


def _severity(
    word: OverrideWord, configuration: Configuration, classes: ConfigClasses | Unknown
) -> Severity | None:
    """A warning where the job may train all the same.

    It may never read the value, or Python takes any text for true.
    """
    default = _default(word, configuration)
    unread = isinstance(classes, ConfigClasses) and word.key in classes.unread
    is_unread_section = isinstance(default, Mapping) and bool(default) and not _READ.fullmatch(word.key)
    trains = isinstance(default, bool) or is_unread_section or unread or not is_read(configuration, word.key)
    return "warning" if trains else None


def _correction(word: OverrideWord, configuration: Configuration) -> Correction | None:
    """The same value in the form that verl accepts, if the text has a single meaning.

    For a single number in place of a list, it is a list that begins with that number.

    Otherwise 1 for the numbers of GPUs and nodes, and verl's default for other switches and numbers.
    """
    default = _default(word, configuration)
    if word.value == _NOTHING:
        return reworded(word, f"{word.sign}{word.key}=null")
    if _switch(word, default):
        return reworded(word, f"{word.sign}{_switch(word, default)}={word.value}")
    new = _meant(word.value, default)
    if new is not None:
        return reworded(
            word, f"{word.sign}{word.key}={as_written(new)}", f"{_plain(word.value)} means {as_written(new)}"
        )
    if isinstance(default, list) and isinstance(word.value, (int, float)):
        new = [word.value, *default[1:]]
        effect = f"{word.key} is {as_written(new)}: the given value, then verl's defaults"
        return reworded(word, f"{word.sign}{word.key}={as_written(new)}", effect=effect)
    if word.key in (GPUS, NODES):
        effect = f"{word.key} is 1 instead of {_plain(word.value)}"
        return reworded(word, f"{word.sign}{word.key}=1", effect=effect)
    if isinstance(default, (bool, int, float)):
        effect = f"{word.key} is verl's default, {as_written(default)}, instead of {_plain(word.value)}"
        return reworded(word, None, effect=effect)
    if word.key == _TRACKERS and word.value is None:
        return reworded(word, f"{word.sign}{_TRACKERS}=[console]", effect="metrics are only printed")
    if isinstance(default, Mapping):
        effect = (
            f"{word.key} is verl's default, {'empty' if not default else 'a section'}, instead of "
            f"{_plain(word.value)}"
        )
        return reworded(word, None, effect=effect)
    return None


def _switch(word: OverrideWord, default: object) -> str:
    """The key in a section that a word in the section's place means; "" if there is none.

    It is the section's own switch for True or False, and its `name` for a text.
    """
    if not isinstance(default, Mapping):
        return ""
    if isinstance(word.value, bool):
        return f"{word.key}.enable" if isinstance(default.get("enable"), bool) else ""
    return f"{word.key}.name" if isinstance(word.value, str) and isinstance(default.get("name"), str) else ""


def _meant(value: object, default: object) -> object:
    """The single meaning of a text or a fraction in place of a value of this type; None if there is none."""
    if isinstance(default, bool):
        text = str(value).lower()
        near = difflib.get_close_matches(text, ("true", "false"), 1, _SLIP)
        return _SWITCHES.get(near[0] if near else text)
    if isinstance(default, (int, float)):
        text = str(value).strip(" \"'")
        if re.fullmatch(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?", text):
            text = text.replace(",", ".")
        share = text.endswith("%") and isinstance(default, float) and 0 < default <= 1
        try:
            number = float(text.removesuffix("%").strip()) / 100 if share else float(text)
        except ValueError:
            return None
        if isinstance(default, int):
            return int(number) if number.is_integer() else None
        return number if math.isfinite(number) else None
    return None


def _phase_of_use(key: str) -> Phase:
    """Where the job uses a setting that is null.

    It uses an adapter's when the adapter is made, its trainer's before the first update, and its losses' in
    that update.
    """
    if key.endswith(".lora_alpha"):
        return "workers"
    return "first batch" if key.startswith("trainer.") else "first update"


def _phase(word: OverrideWord, validation: Validation | Unknown) -> Phase | None:
    """Where verl stops: in its validation (None) if that reads the key, otherwise when workers use it."""
    if isinstance(validation, Unknown) or any(word.key in raised.keys for raised in validation.raised):
        return None
    return "workers"


def _default(word: OverrideWord, configuration: Configuration) -> Any:
    return configuration.default(word.key)


def _plain(value: Any) -> str:
    if value is None:
        return "null"
    text = "a section" if isinstance(value, Mapping) else str(value)
    return without_middle(text, 60)


def _remedy(word: OverrideWord, default: Any) -> str:
    if word.value == _NOTHING:
        return f"write {word.sign}{word.key}=null"
    if _switch(word, default):
        return f"write {word.sign}{_switch(word, default)}={word.value}"
    if isinstance(word.value, float) and word.value.is_integer():
        return f"write {word.sign}{word.key}={int(word.value)}"
    new = _meant(word.value, default)
    if new is not None:
        return f"write {word.sign}{word.key}={as_written(new)}"
    if isinstance(default, (bool, int, float)):
        return f"correct {word.key}; verl's default is {as_written(default)}"
    if word.key == _TRACKERS and word.value is None:
        return f"write {word.sign}{_TRACKERS}=[console]"
    return f"correct {word.key}"
