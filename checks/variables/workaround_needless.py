"""ENV104: a workaround is set that this environment no longer needs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import with_rollout
from verl_doctor.checks.shared.variables import places
from verl_doctor.checks.variables._variable_examples import SCRIPT
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.kernels.compile_cache import SWITCHED_OFF_BY as NO_CACHE
from verl_doctor.toolkit.collectors.kernels.compile_cache import CompileCache
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import THIS_SHELL, Launch, Setting
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableRead, VariableReaders
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_FIX = "compile-cache-on"
_FORCE = "TORCHINDUCTOR_FORCE_DISABLE_CACHES"
_WORKAROUNDS = (NO_CACHE, _FORCE)
# NovaSky-AI/SkyRL#2137, #2138; as of 2026-11.
_COST = "measured elsewhere: an engine starts in 64 s without the cache, in 31 s with it"
_EAGER = "actor_rollout_ref.rollout.enforce_eager"

_OLD = CompileCache("2.9.1")
_SOUND = CompileCache(
    torch="2.11.0", written_whole_by="torch 2.11.0", read_from="/env/torch/_inductor/standalone_compile.py"
)
_READ = VariableRead(package="vllm", path="/env/vllm/envs.py", line=369)
_ALONE = VariableReaders((Reading(name=NO_CACHE, owner="vllm", readers=(_READ,)),))
_UNREAD = VariableReaders((Reading(name=NO_CACHE, owner="vllm"),))
_FORCED = VariableReaders(
    (Reading(name=_FORCE, owner="torch", unclear="torch/_inductor/config.py names it"),)
)
_SHELL = Variables()


def _script(value: str) -> Launch:
    return Launch(
        files=((SCRIPT, "shell script"),),
        settings=(Setting(name=NO_CACHE, value=value, path=SCRIPT, line=3),),
    )


def _by_verl(value: str) -> EffectiveEnvironment:
    values = (Value(value),)
    row = Effective(
        name=NO_CACHE,
        driver=Value(),
        raylets=(Value(),),
        workers=values,
        decided_by="verl",
        path="/env/verl/trainer/constants_ppo.py",
        line=93,
    )
    return EffectiveEnvironment((row,))


def _examples() -> list[Example]:
    return [
        Example("an older torch needs it", (_ALONE, _SHELL, _script("1"), _OLD)),
        Example("it is switched off", (_ALONE, _SHELL, _script("0"), _SOUND)),
        Example("nothing reads it", (_UNREAD, _SHELL, _script("1"), _SOUND)),
        Example(
            "nothing is compiled", (_ALONE, _SHELL, _script("1"), _SOUND, with_rollout(enforce_eager=True))
        ),
        Example(
            "verl's own, and nothing is compiled",
            (_ALONE, _SHELL, _by_verl("1"), _SOUND, with_rollout(enforce_eager=True)),
        ),
        Example(
            "torch no longer needs it",
            (_ALONE, _SHELL, _script("1"), _SOUND),
            "is no longer needed with torch 2.11.0",
        ),
        Example(
            "vLLM writes the cache safely with an older torch",
            (_ALONE, _SHELL, _script("1"), CompileCache(torch="2.9.1", written_whole_by="vLLM 0.18.1")),
            "no longer needed with vLLM 0.18.1",
        ),
        Example(
            "torch's own switch, which its table of options names",
            (_FORCED, Variables({_FORCE: "1"}), _SOUND),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES=1 is no longer needed",
        ),
        Example(
            "verl sets it by itself",
            (VariableReaders(), _SHELL, _by_verl("1"), _SOUND, with_rollout(enforce_eager=False)),
            "verl sets VLLM_DISABLE_COMPILE_CACHE=1",
        ),
    ]


@check("ENV104", severity="warning", examples=_examples)
def workaround_needless(
    cache: CompileCache,
    readers: VariableReaders,
    variables: Variables,
    launch: Launch | Unknown,
    configuration: Configuration | Unknown,
    environment: EffectiveEnvironment | Unknown,
) -> Iterator[Finding]:
    """A workaround is set that this environment no longer needs.

    ## Why it matters

    In older releases, engines that started at the same time could damage each other's compile cache.
    `VLLM_DISABLE_COMPILE_CACHE=1` was the usual workaround, `TORCHINDUCTOR_FORCE_DISABLE_CACHES=1` a cruder
    one. torch 2.10 and later write the cache safely, and vLLM 0.17 and later do so even with an older torch.
    The workaround now only costs time: everything is compiled again at every start of an engine, which takes
    half a minute. verl itself still sets it for its workers.

    ## How to fix

    Remove it. If verl sets it for the workers, set `VLLM_DISABLE_COMPILE_CACHE=0` in the environment from
    which Ray is started; verl then leaves the variable alone.
    """
    if not cache.written_whole_by or _is_eager(configuration):
        return
    verl = None if isinstance(environment, Unknown) else environment.get(NO_CACHE)
    given = verl is not None and verl.decided_by == "verl" and verl.worker.text not in (None, "", "0")
    written = False
    for name in _WORKAROUNDS:
        reading = readers.get(name)
        if reading is None or reading.dead:
            continue
        by_verl = next((setter for setter in reading.setters if setter.package == "verl"), None)
        for place in places(name, variables, launch):
            if (place.value or "0") != "0":
                written = written or name == NO_CACHE
                yield Finding(
                    (
                        f"{place.assignment} is no longer needed with {cache.written_whole_by}, and makes "
                        "each engine compile again"
                    ),
                    Evidence(
                        f"{place.assignment}{'' if place.location else f' in {place.where}'}; {_COST}",
                        f"verl would set it too ({by_verl})" if by_verl else "",
                        str(reading.readers[0]) if reading.readers else cache.read_from,
                    ),
                    subject=Subject("variable", name),
                    location=place.location,
                    remedy=f"set {NO_CACHE}=0; if it is not set, verl sets it to 1"
                    if name == NO_CACHE
                    else "remove it",
                    fix=_FIX if name == NO_CACHE and place.where == THIS_SHELL else None,
                )
    if given and verl is not None and not written:
        yield Finding(
            (
                f"verl sets {NO_CACHE}=1, which is no longer needed with {cache.written_whole_by}: each "
                "engine compiles again"
            ),
            Evidence(_COST, f"{NO_CACHE}=0", cache.read_from),
            subject=Subject("variable", NO_CACHE),
            location=Location(verl.path, verl.line or None) if verl.path else None,
            remedy=f"set {NO_CACHE}=0 where Ray is started, and for the job; verl then leaves it alone",
            severity="info",
            fix=_FIX,
        )


def _is_eager(configuration: Configuration | Unknown) -> bool:
    """Whether the job's engines compile nothing."""
    return not isinstance(configuration, Unknown) and configuration.get(_EAGER) is True
