"""NET133: vLLM's all-reduce through symmetric memory stops verl's workers."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.effective import own, row
from verl_doctor.checks.shared.gpus import healthy, node
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.cuda.symmetric_memory import VARIABLE, SymmetricMemory
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_RANKS = "actor_rollout_ref.rollout.tensor_model_parallel_size"
_FROM = "/env/vllm/distributed/device_communicators/symm_mem.py"
_BAD = SymmetricMemory(on=True, stops=True, in_workers=True, read_from=_FROM)
_CAUGHT = SymmetricMemory(on=True, stops=False, in_workers=True, read_from=_FROM)
_OWN_PROCESSES = SymmetricMemory(on=True, stops=True, in_workers=False, read_from=_FROM)
_OFF = SymmetricMemory(on=False, stops=True, in_workers=True, read_from=_FROM)
_OLDER_GPU = node(healthy(capability="8.0"))
_NO_JOB = (Configuration, Unknown("no launch script"))


def _examples() -> list[Example]:
    return [
        Example(
            "verl disables symmetric memory",
            (_BAD, own(row(VARIABLE, None, None, "0", "verl")), node(), _NO_JOB),
        ),
        Example("vLLM continues without symmetric memory", (_CAUGHT, own(), node(), _NO_JOB)),
        Example("engine ranks in vLLM's own processes", (_OWN_PROCESSES, own(), node(), _NO_JOB)),
        Example("a vLLM in which symmetric memory is off by default", (_OFF, own(), node(), _NO_JOB)),
        Example("GPUs for which vLLM does not use symmetric memory", (_BAD, own(), _OLDER_GPU, _NO_JOB)),
        Example("one rank", (_BAD, own(), node(), *configured(f"{_RANKS}=1"))),
        Example("two ranks", (_BAD, own(), node(), *configured(f"{_RANKS}=2")), "stops verl's workers"),
        Example("an unknown number of ranks", (_BAD, own(), node(), _NO_JOB), "stops verl's workers"),
    ]


@check("NET133", phase="workers", requires={"CUDA140"}, examples=_examples)
def symmetric_memory_in_workers(
    symmetric: SymmetricMemory,
    environment: EffectiveEnvironment,
    gpus: Gpus,
    configuration: Configuration | Unknown,
) -> Iterator[Finding]:
    """Symmetric memory for vLLM's all-reduce stops verl's workers.

    ## Why it matters

    In this verl the ranks of an engine are workers to which Ray shows one GPU each, so each calls its
    GPU number 0. Symmetric memory treats them as the same GPU:
    `CUDASymmetricMemoryAllocator::rendezvous: detected allocations from overlapping devices from
    different ranks`, and this vLLM does not continue without it.

    ## How to fix

    Set `VLLM_ALLREDUCE_USE_SYMM_MEM=0` for Ray and the job: vLLM then uses its other kernels. Later
    releases of verl set it themselves, and still later ones run the engine in separate processes; vLLM
    0.11.1 only warns.

    ## References

    verl-project/verl#3791
    """
    ranks = configuration.number(_RANKS) if isinstance(configuration, Configuration) else None
    modern = any(device.capability >= "9" or len(device.capability) > 3 for device in gpus.sound)
    if not (symmetric.on and symmetric.stops and symmetric.in_workers and modern) or ranks == 1:
        return
    given = environment.worker(VARIABLE)
    if given.undetermined or given.text not in (None, "1"):
        return
    yield Finding(
        "vLLM's all-reduce through symmetric memory stops verl's workers, which see one GPU each",
        Evidence(
            found=f"{VARIABLE} is {given.text or 'not set'}, and on by default",
            wanted=f"{VARIABLE}=0",
            read_from=symmetric.read_from,
        ),
        subject=Subject("variable", VARIABLE),
        remedy=f"set {VARIABLE}=0 for Ray and the job",
        severity=None if ranks else "warning",
        phase="start",
        fix="no-symmetric-memory",
    )
