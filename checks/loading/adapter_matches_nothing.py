"""LOAD123: the adapter's settings select no module of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.adapter_modules import AdapterModules
from verl_doctor.toolkit.rule import (
    EVERY_JOB,
    Correction,
    Evidence,
    Example,
    Finding,
    Location,
    Subject,
    check,
)
from verl_doctor.toolkit.sources.hydra.written import as_written
from verl_doctor.toolkit.text import listed

_MODEL = "/models/qwen"
_TARGETS = "actor_rollout_ref.model.target_modules"
_EXCLUDED = "actor_rollout_ref.model.exclude_modules"
_BETWEEN = re.compile(r"[\s,]+")
_NAMES = ("down_proj", "q_proj", "v_proj")


def _examples() -> list[Example]:
    return [
        Example("modules of the model", (*configured(f"+{_TARGETS}=[q_proj]"), AdapterModules(_MODEL))),
        Example(
            "names without commas, which match nothing",
            (
                *configured(f"+{_TARGETS}=[q_proj v_proj]"),
                AdapterModules(folder=_MODEL, lacking="target_modules", key=_TARGETS, names=_NAMES),
            ),
            "actor_rollout_ref.model.target_modules matches no module of /models/qwen",
        ),
        Example(
            "all modules excluded",
            (
                *configured(f"+{_EXCLUDED}=.*"),
                AdapterModules(folder=_MODEL, lacking="exclude_modules", key=_EXCLUDED, names=_NAMES),
            ),
            "matches all modules of the adapter",
        ),
    ]


@check(
    "LOAD123",
    phase="workers",
    requires=("CFG101", "CFG102", "CFG103", "LOAD101"),
    examples=_examples,
    since="0.2",
)
def adapter_matches_nothing(configuration: Configuration, adapter: AdapterModules) -> Iterator[Finding]:
    """The adapter's settings select no module of the model.

    ## Why it matters

    PEFT adds an adapter to the modules that `target_modules` names, without those that `exclude_modules`
    names. A list has names, or the ends of names; a text is a regular expression that has to match the whole
    name, save for `all-linear`. If nothing is left, PEFT raises an error in every worker: `Target modules ...
    not found in the base model`, or `All modules were excluded`.

    ## How to fix

    Name modules of the model, as in `target_modules=[q_proj,v_proj]`, or set `target_modules=all-linear`.
    """
    if not adapter.lacking:
        return
    word, own = configuration.override_of(adapter.key), configuration.own_line(adapter.key)
    value = as_written(configuration.get(adapter.key))
    problem = (
        f"matches no module of {adapter.folder}"
        if adapter.lacking == "target_modules"
        else "matches all modules of the adapter"
    )
    yield Finding(
        f"{adapter.key} {problem}",
        Evidence(
            found=word.text if word else f"{adapter.key}: {value}",
            wanted=f"{listed(adapter.names, 8)}" if adapter.names else "names of the model's modules",
            read_from=adapter.folder,
        ),
        location=place(word) if word else own and Location(*own),
        remedy=f"name modules of the model: {listed(adapter.names, 8)}"
        if adapter.lacking == "target_modules"
        else f"remove {adapter.key}, or name fewer modules",
        subject=Subject("setting", adapter.key),
        stops=(EVERY_JOB,),
        **healed("LOAD123", _correction(configuration, adapter)),
    )


def _correction(configuration: Configuration, adapter: AdapterModules) -> Correction | None:
    """The modules that the names begin: those without a comma between them are several.

    Otherwise verl's default.
    """
    value = configuration.get(adapter.key)
    if adapter.lacking == "exclude_modules" or not isinstance(value, (list, str)):
        return settings(configuration, {adapter.key: LEAVE_OUT})
    texts = value if isinstance(value, list) else [value]
    given = [name for text in texts if isinstance(text, str) for name in _BETWEEN.split(text) if name]
    meant = [
        [name for name in adapter.names if name == part or name.startswith(f"{part}_")] for part in given
    ]
    if not given or any(len(names) != 1 for names in meant):
        return settings(configuration, {adapter.key: LEAVE_OUT})
    names = list(dict.fromkeys(name for (name,) in meant))
    return settings(
        configuration, {adapter.key: names}, f"{listed(given, 8)} can only mean {listed(names, 8)}", ""
    )
