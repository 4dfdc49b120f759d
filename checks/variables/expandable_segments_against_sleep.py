"""ENV115: expandable segments are on, and vLLM's sleep mode does not work with them."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import with_rollout
from verl_doctor.checks.shared.variables import Place, places
from verl_doctor.checks.variables._allocator import is_expandable, without_expandable
from verl_doctor.checks.variables._variable_examples import SCRIPT
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableReaders
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.collectors.vllm.sleep_allocator import CONFIGURATIONS, SleepAllocator
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_WORKERS = "the environment that the workers get"
_OLD, _NEW = CONFIGURATIONS
_ON = "expandable_segments:True"
_CUDA = VllmPlatform(name="cuda", evidence="torch 2.9.0+cu128")
_REFUSES = SleepAllocator(
    version="0.12.0", read_from="/env/vllm/device_allocator/cumem.py", does="refuses", looks_at=(_OLD,)
)
_SWITCHES = SleepAllocator(
    version="0.24.0", read_from="/env/vllm/device_allocator/cumem.py", does="switches", looks_at=(_OLD,)
)
_NO_SLEEP = with_rollout(name="vllm", free_cache_engine=False)


def _shell(**values: str) -> tuple[Variables, JobVariables]:
    return Variables(values), JobVariables(values)


def _script(name: str, value: str) -> tuple[Variables, JobVariables, Launch]:
    launch = Launch(
        files=((SCRIPT, "shell script"),), settings=(Setting(name=name, value=value, path=SCRIPT, line=3),)
    )
    return Variables(), JobVariables(values={name: value}, places={name: (SCRIPT, 3)}), launch


def _examples() -> list[Example]:
    return [
        Example("nothing is set", (_REFUSES, _CUDA, *_shell())),
        Example(
            "another option", (_REFUSES, _CUDA, *_shell(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128"))
        ),
        Example(
            "switched off", (_REFUSES, _CUDA, *_shell(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:False"))
        ),
        Example("vLLM switches it off itself", (_SWITCHES, _CUDA, *_shell(PYTORCH_CUDA_ALLOC_CONF=_ON))),
        Example(
            "the engine does not sleep", (_REFUSES, _CUDA, *_shell(PYTORCH_CUDA_ALLOC_CONF=_ON), _NO_SLEEP)
        ),
        Example(
            "this torch does not read the newer name",
            (
                _REFUSES,
                _CUDA,
                *_shell(PYTORCH_ALLOC_CONF=_ON),
                VariableReaders((Reading(name=_NEW, owner="torch"),)),
            ),
        ),
        Example(
            "an older vLLM refuses to start",
            (_REFUSES, _CUDA, *_shell(PYTORCH_CUDA_ALLOC_CONF=f"max_split_size_mb:128,{_ON}")),
            "vLLM 0.12.0 stops with an AssertionError",
        ),
        Example(
            "in the launch script", (_REFUSES, _CUDA, *_script(_OLD, _ON)), "stops with an AssertionError"
        ),
        Example(
            "the raylet does not have it, so no worker does",
            (_REFUSES, _CUDA, Variables({_OLD: _ON}), JobVariables()),
        ),
        Example(
            "the raylet has it",
            (_REFUSES, _CUDA, Variables(), JobVariables({_OLD: _ON})),
            "stops with an AssertionError",
        ),
        Example(
            "vLLM does not see the newer name",
            (_SWITCHES, _CUDA, *_shell(PYTORCH_ALLOC_CONF=_ON)),
            "vLLM 0.24.0 ignores PYTORCH_ALLOC_CONF",
        ),
    ]


@check("ENV115", phase="engine", examples=_examples)
def expandable_segments_against_sleep(
    allocator: SleepAllocator,
    platform: VllmPlatform,
    variables: Variables,
    job: JobVariables,
    launch: Launch | Unknown,
    configuration: Configuration | Unknown,
    readers: VariableReaders | Unknown,
) -> Iterator[Finding]:
    """Expandable segments are on, and vLLM's sleep mode does not work with them.

    ## Why it matters

    verl lets vLLM sleep during training, so that both fit on one GPU. Sleep mode needs a memory pool, and
    torch's expandable segments do not work together with it. vLLM up to 0.20.0 stops with an `AssertionError`
    when it detects them. Later releases turn them off for the pool when they detect them, but most read only
    `PYTORCH_CUDA_ALLOC_CONF`, not its newer name `PYTORCH_ALLOC_CONF`. If only the newer name is set,
    sleeping frees nothing: `Sleep mode freed 0.00 GiB memory`. torch itself recommends expandable segments
    when memory runs out.

    ## How to fix

    Remove this option and keep the others. This rule reads what the installed vLLM does.
    """
    if platform.name != "cuda" or not _sleeps(configuration):
        return
    for name in CONFIGURATIONS:
        reading = None if isinstance(readers, Unknown) else readers.get(name)
        seen = name in allocator.looks_at
        if (reading is not None and reading.dead) or (seen and allocator.does == "switches"):
            continue
        if is_expandable(value := job.get(name)):
            found = [place for place in places(name, variables, launch) if is_expandable(place.value or "")]
            yield _finding(allocator, name, found or [Place(name, value, where=_WORKERS)], seen=seen)


def _finding(allocator: SleepAllocator, name: str, found: list[Place], *, seen: bool) -> Finding:
    here = [place.location for place in found if place.location is not None]
    rest = without_expandable(found[0].value or "")
    outcome = (
        f"vLLM {allocator.version} stops with an AssertionError when sleep mode starts"
        if seen
        else f"vLLM {allocator.version} ignores {name}, so that sleeping frees no memory"
    )
    return Finding(
        f"{name} turns expandable segments on: {outcome}",
        Evidence(
            ", ".join(
                f"{place.assignment}{'' if place.location else f' in {place.where}'}" for place in found
            ),
            f"{name}={rest}" if rest else f"no {name}",
            allocator.read_from,
        ),
        location=here[0] if here else None,
        also=tuple(here[1:]),
        remedy=f"set {name}={rest}" if rest else f"unset {name}",
        severity="error" if seen else "warning",
        fix="no-expandable-segments",
        stops=(EVERY_JOB,) if seen else (),
        phase="start" if seen else None,
        subject=Subject("variable", name),
    )


def _sleeps(configuration: Configuration | Unknown) -> bool:
    """Whether the job's engine is vLLM and releases its memory between steps, as by verl's defaults."""
    if isinstance(configuration, Unknown):
        return True
    rollout = "actor_rollout_ref.rollout"
    engine = configuration.get(f"{rollout}.name")
    if isinstance(engine, str) and engine != "vllm":
        return False
    return not any(
        configuration.get(f"{rollout}.{key}") is False for key in ("free_cache_engine", "enable_sleep_mode")
    )
