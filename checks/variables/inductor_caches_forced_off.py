"""ENV119: Torch's compile caches are disabled, and vLLM cannot compile without them with this torch."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from verl_doctor.checks.shared.configuration import with_rollout
from verl_doctor.checks.shared.variables import places
from verl_doctor.checks.variables._variable_examples import SCRIPT
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.kernels.compile_cache import CompileCache
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_NAME = "TORCHINDUCTOR_FORCE_DISABLE_CACHES"
_EAGER = "actor_rollout_ref.rollout.enforce_eager"
# vllm-project/vllm#21858: 2.7.1 fails, 2.8 does not. As of 2026-11.
_FIXED_IN = Version("2.8")
_SET = Launch(
    files=((SCRIPT, "shell script"),), settings=(Setting(name=_NAME, value="1", path=SCRIPT, line=3),)
)


def _examples() -> list[Example]:
    return [
        Example("a newer torch", (CompileCache("2.8.0"), Variables(), _SET)),
        Example(
            "nothing is compiled",
            (CompileCache("2.7.1"), Variables(), _SET, with_rollout(enforce_eager=True)),
        ),
        Example("it is set to 0", (CompileCache("2.7.1"), Variables({_NAME: "0"}))),
        Example(
            "an older torch",
            (CompileCache("2.7.1+cu126"), Variables(), _SET),
            "with torch 2.7.1+cu126, vLLM cannot compile a model",
        ),
        Example(
            "in this shell",
            (CompileCache("2.6.0"), Variables({_NAME: "1"}), with_rollout(enforce_eager=False)),
            "cannot compile",
        ),
    ]


@check("ENV119", phase="engine", examples=_examples)
def inductor_caches_forced_off(
    cache: CompileCache,
    variables: Variables,
    launch: Launch | Unknown,
    configuration: Configuration | Unknown,
) -> Iterator[Finding]:
    """Torch's compile caches are disabled, and vLLM cannot compile without them with this torch.

    ## Why it matters

    `TORCHINDUCTOR_FORCE_DISABLE_CACHES=1` is meant as a workaround for a damaged compile cache. With torch
    2.7.1 and older, vLLM reads what it has just compiled back from that cache, and stops without it: `leading
    to a corrupted compilation artifact`. That is the very message for which the variable is usually set.

    ## How to fix

    Remove the variable, and delete the folder `torch_compile_cache` in VLLM_CACHE_ROOT once. If several
    engines damage each other's cache, set `VLLM_DISABLE_COMPILE_CACHE=1` instead.
    """
    eager = not isinstance(configuration, Unknown) and configuration.get(_EAGER) is True
    if eager or not _is_older(cache.torch):
        return
    for place in places(_NAME, variables, launch):
        if (place.value or "0") != "0":
            yield Finding(
                (
                    f"{place.assignment}: with torch {cache.torch}, vLLM cannot compile a model without its "
                    "caches"
                ),
                Evidence(
                    f"torch {cache.torch}", "torch 2.8, or the variable not set", "vllm-project/vllm#21858"
                ),
                subject=Subject("variable", _NAME),
                location=place.location,
                remedy="remove it; VLLM_DISABLE_COMPILE_CACHE=1 keeps engines from sharing a cache",
                stops=(EVERY_JOB,),
                phase="start",
            )


def _is_older(torch: str) -> bool:
    try:
        return Version(torch) < _FIXED_IN
    except InvalidVersion:
        return False
