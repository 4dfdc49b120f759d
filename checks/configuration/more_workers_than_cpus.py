"""CFG112: the launch script requests more workers than this machine has CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.configuration._machine_settings import relief, workers_for
from verl_doctor.checks.shared.configuration import WORKERS, configured, place
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_RAY = "ray_kwargs.ray_init.num_cpus"


def _cpus(number: float | None) -> Resources:
    return Resources(gpus=(Gpu(name="NVIDIA H200", memory=143771),), cpus=number, memory=64 << 30)


def _irrelevant(resources: Resources) -> str | None:
    return None if resources.gpus else "no GPU is visible here, so the job runs elsewhere"


def _examples() -> list[Example]:
    return [
        Example("a login node", (*configured(), Resources(gpus=None, cpus=2, memory=None))),
        Example("enough CPUs", (*configured(), _cpus(64))),
        Example("the number of CPUs is unknown", (*configured(), _cpus(None))),
        Example(
            "8 agent workers on 4 CPUs",
            (*configured(), _cpus(4)),
            "requests 8 agent workers, but this machine has 4 CPUs",
        ),
        Example(
            "more CPUs for Ray than there are",
            (*configured(f"{_RAY}=64", f"{WORKERS}=1"), _cpus(4)),
            "num_cpus is 64, but",
        ),
    ]


@check("CFG112", severity="warning", applies=_irrelevant, examples=_examples)
def more_workers_than_cpus(configuration: Configuration, resources: Resources) -> Iterator[Finding]:
    """The launch script requests more workers than this machine has CPUs.

    ## Why it matters
    Each agent worker is a separate process with its own Python interpreter, tokenizer and buffers. More of
    them than CPUs slow each other down, start slowly (`worker_register_timeout`) and take memory from the
    rollout. A container is often limited to fewer CPUs than the machine has.

    ## How to fix
    Set the number of agent workers that the finding names, half of the CPUs. If memory is short as well, the
    finding lists smaller batches, samples, `max_num_seqs`, `max_num_batched_tokens` and
    `gpu_memory_utilization`: about half of each, computed and not measured. Do not set `num_cpus` above the
    number of CPUs.
    """
    if resources.cpus is None:
        return
    here = f"{resources.cpus:g} CPUs"
    workers, most = configuration.number(WORKERS), workers_for(resources)
    if workers and most and workers > resources.cpus:
        word = configuration.override_of(WORKERS)
        less = relief(configuration)
        yield Finding(
            f"the job requests {workers:g} agent workers, but this machine has {here}",
            Evidence(
                found=f"{WORKERS}={workers:g}" + ("" if word else ", verl's default"),
                wanted=f"{most} or fewer",
            ),
            location=place(word) if word else None,
            remedy=f"set {WORKERS}={most}"
            + (f"; if memory is short as well: {' '.join(less)}" if less else ""),
            subject=Subject("setting", WORKERS),
        )
    cpus_given, word = configuration.number(_RAY), configuration.override_of(_RAY)
    if cpus_given and word and cpus_given > resources.cpus:
        yield Finding(
            f"{_RAY} is {cpus_given:g}, but this machine has {here}",
            Evidence(found=word.text, wanted=f"{_RAY}={int(resources.cpus) or 1}"),
            location=place(word),
            remedy=f"set {_RAY}={int(resources.cpus) or 1}, or remove it",
            subject=Subject("setting", _RAY),
        )
