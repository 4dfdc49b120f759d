"""ENV106: a variable has a value that stops the job."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from verl_doctor.checks.shared.configuration import GPUS, NODES, configured, number_of
from verl_doctor.checks.shared.corrections import healed
from verl_doctor.checks.shared.variables import Place, not_set, places
from verl_doctor.checks.variables._variable_examples import SCRIPT
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import (
    THIS_SHELL,
    Command,
    Launch,
    Setting,
    Word,
    where_set,
)
from verl_doctor.toolkit.collectors.variables.unreadable_values import UnreadableValue, UnreadableValues
from verl_doctor.toolkit.collectors.vllm.refusals import EXPANDABLE, VllmRefusals
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Phase, Subject, check

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_ENGINE = "VLLM_USE_V1"
_ALGORITHM = "NCCL_ALGO"
# https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-algo
_ALGORITHMS = ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
_CHECKED_SINCE = Version("2.24")  # older NCCL ignored unknown names
_SLIP = 0.7  # the least similarity of a typo
_NCCL = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
_WARNINGS = "PYTHONWARNINGS"
# `action:message:category:module:line`, of which all but the first may be missing; a later one counts before
# an earlier one.
_EVERY_WARNING = re.compile(r"error(?:::(?:Warning)?:*)?")
_NO_SLEEP = "free_cache_engine=false"

_OLD = VllmRefusals("0.12.0", expandable="/env/vllm/device_allocator/cumem.py:155")
_NEW = VllmRefusals("0.24.0")
_LAST_V0 = VllmRefusals("0.11.0", old_engine="/env/vllm/v1/engine/llm_engine.py:60")


_PORT = UnreadableValue(
    name="VLLM_PORT",
    program="vLLM",
    read_from="/env/vllm/envs.py:9",
    text="ValueError: no integer",
    phase="engine",
)
_NCCL_INSTALLED = Packages(
    (Distribution(name="nvidia-nccl-cu13", version="2.28.9", location="/env/nvidia_nccl_cu13.dist-info"),)
)


def _script(name: str, value: str, *words: str) -> tuple[Variables, Launch]:
    command = Command(
        module="verl.trainer.main_ppo",
        words=tuple(Word(text=word, path=SCRIPT, line=9) for word in words),
        path=SCRIPT,
        line=8,
    )
    return Variables(), Launch(
        files=((SCRIPT, "shell script"),),
        settings=(Setting(name=name, value=value, path=SCRIPT, line=3),),
        command=command,
    )


def _examples() -> list[Example]:
    return [
        Example("this vLLM turns it off itself", (_NEW, *_script(_ALLOCATOR, EXPANDABLE))),
        Example(
            "there is no sleep mode",
            (_OLD, *_script(_ALLOCATOR, EXPANDABLE, "a.rollout.free_cache_engine=False")),
        ),
        Example("other settings of the allocator", (_OLD, *_script(_ALLOCATOR, "max_split_size_mb:512"))),
        Example("the V1 engine is requested", (_LAST_V0, *_script(_ENGINE, "1"))),
        Example(
            "an algorithm of NCCL", (_NEW, *_script(_ALGORITHM, "Ring,Tree"), _NCCL_INSTALLED, *configured())
        ),
        Example(
            "by function, and without one",
            (_NEW, *_script(_ALGORITHM, "allreduce:^nvls;broadcast:ring"), _NCCL_INSTALLED, *configured()),
        ),
        Example(
            "one GPU needs no algorithm",
            (_NEW, *_script(_ALGORITHM, "RINGG"), _NCCL_INSTALLED, *configured("trainer.n_gpus_per_node=1")),
        ),
        Example(
            "a typo",
            (_NEW, *_script(_ALGORITHM, "RINGG"), _NCCL_INSTALLED, *configured()),
            "NCCL 2.28.9 has no algorithm RINGG; did you mean ring?",
        ),
        Example("one kind of warnings is raised", (_NEW, *_script(_WARNINGS, "error::ResourceWarning"))),
        Example("verl warns in some jobs only", (_NEW, *_script(_WARNINGS, "error::UserWarning"))),
        Example("all warnings are raised, and then none", (_NEW, *_script(_WARNINGS, "error,ignore"))),
        Example(
            "all warnings are raised",
            (_NEW, *_script(_WARNINGS, "ignore::DeprecationWarning,error")),
            "PYTHONWARNINGS=ignore::DeprecationWarning,error turns every warning into an error",
        ),
        Example(
            "expandable segments", (_OLD, *_script(_ALLOCATOR, EXPANDABLE)), "does not start sleep mode with"
        ),
        Example(
            "a number with its unit",
            (*_script("VLLM_PORT", "80s"), UnreadableValues((_PORT,))),
            "vLLM cannot read VLLM_PORT=80s: ValueError",
        ),
        Example(
            "the V0 engine, which was removed",
            (_LAST_V0, *_script(_ENGINE, "0")),
            "no longer has a V0 engine",
        ),
    ]


@check("ENV106", phase="workers", examples=_examples)
def value_refused(
    refusals: VllmRefusals | Unknown,
    variables: Variables,
    launch: Launch | Unknown,
    packages: Packages | Unknown,
    configuration: Configuration | Unknown,
    unreadable: UnreadableValues | Unknown,
) -> Iterator[Finding]:
    """A variable has a value that stops the job.

    ## Why it matters

    Every process that reads the variable fails at that line, in some cases only when the engine starts,
    minutes after the job did:

    * `expandable_segments:True` in PYTORCH_CUDA_ALLOC_CONF, which PyTorch's own out-of-memory message
      recommends: `AssertionError: Expandable segments are not compatible with memory pool`.
    * `VLLM_USE_V1=0`, if this vLLM has only the V1 engine: `ValueError: Using V1 LLMEngine, but
      envs.VLLM_USE_V1=False`.
    * An algorithm in NCCL_ALGO that NCCL 2.24 or later does not have: `invalid usage`, with the reason only
      in the output of `NCCL_DEBUG=WARN`.
    * A word such as `true`, `10min` or `95%`, where vLLM or Ray expects a number or one of its choices.
    * A logging level that Python does not have in a variable such as VERL_LOGGING_LEVEL, `debug` in small
      letters included: `ValueError: Unknown level: 'debug'`.
    * `PYTHONWARNINGS=error`, with which the first warning is an exception: verl warns when it validates the
      configuration, and libraries when they are imported.
    * A word in PYTHONHASHSEED, or a folder without a Python in PYTHONHOME: Python itself does not start.

    ## How to fix

    Unset the variable, unless the job needs it. Otherwise give it a value that its reader accepts:

    * PYTORCH_CUDA_ALLOC_CONF: remove `expandable_segments:True` and keep the rest; vLLM 0.20.1 and later turn
      it off for their own memory pool.
    * VLLM_USE_V1: remove it.
    * NCCL_ALGO: leave it unset, so that NCCL chooses.
    * Numbers: write them without units.
    * Logging levels: `DEBUG`, `INFO`, `WARN`, `WARNING`, `ERROR`, `CRITICAL` or `FATAL`, in capitals.
    * PYTHONWARNINGS: name the kind of warning, as in `error::ResourceWarning`, or remove it.
    * PYTHONHASHSEED: a number or `random`. PYTHONHOME: remove it.
    """
    yield from _unknown_algorithms(variables, launch, packages, configuration)
    yield from _unreadable(unreadable, variables, launch)
    yield from _raised_warnings(variables, launch)
    if isinstance(refusals, Unknown):
        return
    for place in places(_ALLOCATOR, variables, launch):
        if refusals.expandable and EXPANDABLE in (place.value or "") and not _without_sleep(launch):
            yield _finding(
                place,
                f"vLLM {refusals.version} does not start sleep mode with {EXPANDABLE} in {_ALLOCATOR}",
                refusals.expandable,
                f"remove {EXPANDABLE} from {_ALLOCATOR}",
            )
    for place in places(_ENGINE, variables, launch):
        if refusals.old_engine and place.value == "0":
            yield _finding(
                place,
                f"vLLM {refusals.version} no longer has a V0 engine and stops because of {_ENGINE}=0",
                refusals.old_engine,
                f"remove {_ENGINE}",
            )


def _unknown_algorithms(
    variables: Variables,
    launch: Launch | Unknown,
    packages: Packages | Unknown,
    configuration: Configuration | Unknown,
) -> Iterator[Finding]:
    """Yield typos in NCCL_ALGO, for a job of several GPUs.

    Its form is "allreduce:ring,tree;broadcast:^nvls", with a function before each colon.
    """
    version = _nccl(packages)
    several = any(number_of(configuration, key) > 1 for key in (GPUS, NODES))
    for place in places(_ALGORITHM, variables, launch) if version and several else ():
        for part in (place.value or "").split(";"):
            for token in part.rpartition(":")[2].removeprefix("^").split(","):
                name = token.strip().lower()
                near = next(iter(difflib.get_close_matches(name, _ALGORITHMS, 1, _SLIP)), "")
                if near and not near.startswith(name):
                    yield _finding(
                        place,
                        f"NCCL {version} has no algorithm {token.strip()}; did you mean {near}?",
                        "NCCL's graph/tuning.cc",
                        f"write {near} in {_ALGORITHM}, or remove it",
                        stops=(EVERY_JOB,),
                    )


def _unreadable(
    unreadable: UnreadableValues | Unknown, variables: Variables, launch: Launch | Unknown
) -> Iterator[Finding]:
    for value in () if isinstance(unreadable, Unknown) else unreadable.values:
        for place in _read_by_job(value.name, variables, launch):
            yield _finding(
                place,
                f"{value.program} cannot read {place.assignment}: {value.text}",
                value.read_from,
                f"{_accepted(value)}, or remove {value.name}",
                (EVERY_JOB,),
                value.phase,
            )


def _read_by_job(name: str, variables: Variables, launch: Launch | Unknown) -> list[Place]:
    """The place whose value the job reads, if any: the shell's only where no file certainly sets another."""
    found = list(zip(places(name, variables, launch), where_set(name, variables, launch), strict=True))
    certain = [place for place, setting in found if setting.in_file and not setting.conditional]
    return certain[-1:] or [place for place, _ in found[-1:]]


def _accepted(value: UnreadableValue) -> str:
    """Return the step that corrects a value."""
    if value.accepted:
        return f"set {value.name} to {value.accepted}"
    return f"use a value that {value.program} accepts"


def _raised_warnings(variables: Variables, launch: Launch | Unknown) -> Iterator[Finding]:
    for place in _decisive(_WARNINGS, variables, launch):
        if _EVERY_WARNING.fullmatch((place.value or "").rpartition(",")[2].strip()):
            yield _finding(
                place,
                (
                    f"{place.assignment} turns every warning into an error: the first one of verl, Ray or "
                    "torch ends the job"
                ),
                "Python",
                f"remove {_WARNINGS}",
                (EVERY_JOB,),
                "validation",
            )


def _decisive(name: str, variables: Variables, launch: Launch | Unknown) -> list[Place]:
    """The place that certainly sets a variable last, if any: the shell only where no file changes it."""
    given = [] if isinstance(launch, Unknown) else [each for each in launch.settings if each.name == name]
    if any(setting.conditional for setting in given) or (given and given[-1].removed):
        return []
    found = places(name, variables, launch)
    return [place for place in found if place.where != THIS_SHELL or not given][-1:]


def _nccl(packages: Packages | Unknown) -> str:
    """The version of the installed NCCL if it checks the variable; "" otherwise."""
    found = [packages.get(name) for name in _NCCL] if isinstance(packages, Packages) else []
    return next((entry.version for entry in found if entry and _checks(entry.version)), "")


def _checks(version: str) -> bool:
    try:
        return Version(version) >= _CHECKED_SINCE
    except InvalidVersion:
        return False


def _finding(
    place: Place,
    message: str,
    refuses: str,
    remedy: str,
    stops: tuple[str, ...] = (),
    phase: Phase | None = None,
) -> Finding:
    shell = "" if place.location else f" in {place.where}"
    return Finding(
        message,
        Evidence(f"{place.assignment}{shell}; {refuses} raises"),
        place.location,
        subject=Subject("variable", place.name),
        remedy=remedy,
        stops=stops,
        phase=phase,
        **healed("ENV106", not_set(place)),
    )


def _without_sleep(launch: Launch | Unknown) -> bool:
    """Whether the command makes the engine keep its memory, so that there is no pool."""
    if isinstance(launch, Unknown) or launch.command is None:
        return False
    return any((word.text or "").lower().endswith(_NO_SLEEP) for word in launch.command.words)
