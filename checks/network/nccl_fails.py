"""NET130: NCCL cannot transfer a tensor between GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verl_doctor.checks.shared.configuration import GPUS, configured
from verl_doctor.checks.shared.variables import places
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.cuda.collective import Collective
from verl_doctor.toolkit.collectors.cuda.collective_trial import Remedy, Trial
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted

_WORKS = Trial(works=True, first=0.7, bandwidth=213.0, seconds=8.1)
_HANGS = Trial(stuck="the first all-reduce", seconds=60.0)
_APART = Trial((("NCCL_P2P_DISABLE", "1"),), works=True, bandwidth=9)
_NO_PEERS = Trial(
    stuck="the first all-reduce",
    ended=(1, 1),
    messages=("NCCL WARN Cuda failure 217 'peer access is not supported between these two devices'",),
    seconds=9.0,
)


_NO_SCRIPT = (Launch, Unknown("no launch script"))
_NO_JOB = (Configuration, Unknown("no launch script"))


def _tried(*trials: Trial, **shell: str) -> tuple[Any, ...]:
    return Collective(gpus=(0, 1), nccl="2.28.9", trials=trials), Variables(shell), _NO_SCRIPT, _NO_JOB


def _examples() -> list[Example]:
    return [
        Example("the transfer works", _tried(_WORKS)),
        Example("the variable that NCCL needs is set", _tried(_HANGS, _HANGS, _APART, NCCL_P2P_DISABLE="1")),
        Example(
            "the transfer hangs, but works without peer access",
            _tried(_HANGS, _HANGS, _APART),
            "works with NCCL_P2P_DISABLE=1",
        ),
        Example(
            "the transfer fails, but works without cuMem host memory",
            _tried(_NO_PEERS, Trial((("NCCL_CUMEM_HOST_ENABLE", "0"),), works=True, bandwidth=20)),
            "works with NCCL_CUMEM_HOST_ENABLE=0",
        ),
        Example(
            "a job on one GPU",
            (*_tried(_HANGS, _HANGS, _APART)[:3], *configured(f"{GPUS}=1")),
            "hangs in the first all-reduce",
        ),
        Example("no workaround helps", _tried(*(_NO_PEERS,) * 4), "none of the known workarounds helps"),
        Example("the result is wrong", _tried(Trial(wrong=True), *(_HANGS,) * 3), "gives wrong results"),
    ]


@check("NET130", phase="workers", cost="gpu", requires={"CUDA140"}, examples=_examples)
def nccl_fails(
    collective: Collective,
    variables: Variables,
    launch: Launch | Unknown,
    configuration: Configuration | Unknown,
) -> Iterator[Finding]:
    """NCCL cannot transfer a tensor between GPUs.

    ## Why it matters

    Every job on two or more GPUs stops in its first collective: at once (`Cuda failure 217 'peer access is
    not supported between these two devices'`), or after ten silent minutes (`Watchdog caught collective
    operation timeout`, with a small `SeqNum`). Rented machines often report peer access that the host's IOMMU
    or ACS settings break. NCCL with CUDA's host memory also hits a bug in some drivers where peer access is
    missing (NVIDIA/nccl#1838).

    ## How to fix

    If the finding names a variable, a real all-reduce worked with it on these GPUs and failed without: set it
    for Ray and the job. It costs bandwidth, so remove it once the machine is repaired; this rule reports when
    it is no longer needed. If none is named, no known variable helped: NCCL's own lines show the reason.
    """
    plain = collective.plain
    if plain.works or _is_set(collective.remedy, variables, launch):
        return
    how = _how(plain)
    alone = isinstance(configuration, Configuration) and configuration.number(GPUS) == 1
    words = " ".join(f"{name}={value}" for name, value in collective.remedy)
    cure = collective.trials[-1]
    yield Finding(
        f"NCCL {collective.nccl} {how} on GPUs {', '.join(map(str, collective.gpus))}"
        + (f", but works with {words}" if words else "; none of the known workarounds helps"),
        Evidence(
            found=" | ".join(plain.messages) or how,
            wanted=f"{words}: {cure.bandwidth:g} GB/s" if words else "the sum on all ranks",
            read_from=(
                f"{counted(len(collective.trials), 'trial')} of an all-reduce with the torch of this "
                "environment"
            ),
        ),
        subject=Subject("library", "NCCL"),
        remedy=f"set {words} for Ray and the job"
        if words
        else "read NCCL's lines below for the reason; NCCL_DEBUG=INFO prints more",
        fix="nccl-workaround" if words else None,
        severity="info" if alone else None,
        stops=() if alone else (EVERY_JOB,),
    )


def _is_set(remedy: Remedy, variables: Variables, launch: Launch | Unknown) -> bool:
    """Whether the job already sets the variables that it needs."""
    return bool(remedy) and all(
        any(place.value == value for place in places(name, variables, launch)) for name, value in remedy
    )


def _how(trial: Trial) -> str:
    if trial.wrong:
        return "gives wrong results"
    return f"{'fails' if trial.ended else 'hangs'} in {trial.stuck}"
