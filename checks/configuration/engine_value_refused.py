"""CFG128: an engine argument has a value that this vLLM refuses."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import LEAVE_OUT, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.validation.nearest_accepted import share_of_percent
from verl_doctor.toolkit.collectors.vllm.engine_arguments import SECTION
from verl_doctor.toolkit.collectors.vllm.engine_limits import EngineLimit, EngineLimits
from verl_doctor.toolkit.rule import EVERY_JOB, Correction, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.sources.hydra.written import as_written
from verl_doctor.toolkit.text import closest

_ROLLOUT = "actor_rollout_ref.rollout"
_SHARE = f"{_ROLLOUT}.gpu_memory_utilization"
_LIMITS = EngineLimits(
    version="0.31.0",
    limits=(
        EngineLimit(
            argument="gpu_memory_utilization",
            read_from="/env/vllm/config/cache.py:103",
            bounds={"gt": 0, "le": 1},
        ),
        EngineLimit(
            argument="dtype",
            read_from="/env/vllm/config/model.py:168",
            bounds={},
            choices=("auto", "half", "bfloat16"),
        ),
        EngineLimit(argument="limit_mm_per_prompt", read_from="/env/vllm/config/model.py:399", is_table=True),
        EngineLimit(
            argument="stream_interval", read_from="/env/vllm/config/scheduler.py:214", bounds={"ge": 1}
        ),
    ),
    handed={"gpu_memory_utilization": "gpu_memory_utilization", "dtype": "dtype"},
)


def _irrelevant(configuration: Configuration) -> str | None:
    name = configuration.get(f"{_ROLLOUT}.name")
    return None if name == "vllm" else f"{_ROLLOUT}.name is {name!s}, not vllm"


_SLIP = 0.5  # the least likeness of a name


def _examples() -> list[Example]:
    return [
        Example(
            "values that the engine accepts",
            (*configured(f"{_SHARE}=0.4", f"++{_ROLLOUT}.dtype=half"), _LIMITS),
        ),
        Example("nothing is left to vLLM", (*configured(f"{_SHARE}=null"), _LIMITS)),
        Example(
            "a share above 1",
            (*configured(f"{_SHARE}=1.5"), _LIMITS),
            "vLLM 0.31.0 refuses gpu_memory_utilization=1.5: it must be above 0 and at most 1",
        ),
        Example("a percentage", (*configured(f"{_SHARE}=90"), _LIMITS), "it must be above 0 and at most 1"),
        Example(
            "a data type with a typo",
            (*configured(f"++{_ROLLOUT}.dtype=bfloat61"), _LIMITS),
            "it must be one of auto, half, bfloat16",
        ),
        Example("a dictionary", (*configured(f"+{SECTION}.limit_mm_per_prompt.image=2"), _LIMITS)),
        Example(
            "a number for a dictionary",
            (*configured(f"+{SECTION}.limit_mm_per_prompt=2"), _LIMITS),
            "limit_mm_per_prompt=2: it must be a dictionary",
        ),
        Example(
            "an argument of engine_kwargs",
            (*configured(f"+{SECTION}.stream_interval=0"), _LIMITS),
            "stream_interval=0: it must be at least 1",
        ),
    ]


@check(
    "CFG128",
    phase="engine",
    applies=_irrelevant,
    requires=("CFG101", "CFG102", "CFG103", "CFG109"),
    examples=_examples,
    since="0.2",
)
def engine_value_refused(configuration: Configuration, limits: EngineLimits) -> Iterator[Finding]:
    """An engine argument has a value that this vLLM refuses.

    ## Why it matters
    verl passes the rollout's settings and everything below `engine_kwargs.vllm` to vLLM, which checks them
    when its server starts: after Ray is up and the model is loaded into the trainer. The job ends there.

    ## How to fix
    Use a value within the bounds, or one of the names, that the finding lists. They are read from the
    installed vLLM.
    """
    for limit in limits.limits:
        keys = [f"{SECTION}.{limit.argument}"]
        if limit.argument in limits.handed:
            keys.append(f"{_ROLLOUT}.{limits.handed[limit.argument]}")
        key = next(
            (key for key in keys if configuration.get(key) is not None and configuration.override_of(key)), ""
        )
        word = configuration.override_of(key) if key else None
        value = configuration.get(key) if key else None
        takes = limit.refuses(value) if word and not (isinstance(value, str) and "${" in value) else ""
        if not word or not takes:
            continue
        near = _nearest(limit, value, configuration.default(key))
        corrected = _correction(configuration, key, value, near)
        yield Finding(
            f"vLLM {limits.version} refuses {limit.argument}={value}: it must be {takes}",
            Evidence(found=word.text, wanted=takes, read_from=limit.read_from),
            location=place(word),
            remedy=f"write {as_written(near)} instead of {value}"
            if near is not None
            else f"change {word.key}",
            subject=Subject("setting", key),
            stops=(EVERY_JOB,),
            **healed("CFG128", corrected),
        )


def _nearest(limit: EngineLimit, value: object, default: object) -> object:
    """The nearest value that the argument accepts; None if there is none.

    It is a name, the share that a percentage means, or a bound.
    """
    if isinstance(value, str):
        digits = [name for name in limit.choices if _digits(value) and _digits(name) == _digits(value)]
        return closest(value, digits or limit.choices, _SLIP) or None
    if not isinstance(value, (int, float)):
        return None
    candidates = [share_of_percent(value, default), limit.bounds.get("ge"), limit.bounds.get("le"), default]
    accepted = [
        number for number in candidates if isinstance(number, (int, float)) and not limit.refuses(number)
    ]
    return accepted[0] if accepted else None


def _correction(configuration: Configuration, key: str, value: object, near: object) -> Correction | None:
    """What was meant if only the spelling differs: a name with other digits is another one."""
    if near is None:
        return settings(configuration, {key: LEAVE_OUT}, effect=f"{key} has its default")
    meant = isinstance(value, str) and isinstance(near, str) and _digits(value) == _digits(near)
    why = f"{as_written(near)} is the nearest value to {value} that vLLM accepts"
    return settings(configuration, {key: near}, why, "" if meant else None)


def _digits(text: str) -> list[str]:
    return sorted(filter(str.isdigit, text))
