"""ENV114: Megatron's workers do not get CUDA_DEVICE_MAX_CONNECTIONS=1."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import composed
from verl_doctor.checks.shared.effective import own, row, value_text
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Assigned,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

NAME = "CUDA_DEVICE_MAX_CONNECTIONS"
_STRATEGIES = ("actor_rollout_ref.actor.strategy", "critic.strategy")
_BLACKWELL = 10  # the first major compute capability that does not need it


def _needs_it(configuration: Configuration) -> str | None:
    if not any(configuration.get(key) == "megatron" for key in _STRATEGIES):
        return "no engine of this job is Megatron"
    device = configuration.get("trainer.device")
    return None if device in ("cuda", None, MISSING) else f"the device of this job is {device}"


def _job(strategy: str, device: str = "cuda") -> Configuration:
    tree = {"actor_rollout_ref": {"actor": {"strategy": strategy}}, "trainer": {"device": device}}
    return composed(tree)


_WORKER = Assigned(
    value=Value("1"),
    to="workers.megatron_workers.ActorRolloutRefWorker",
    path="/env/verl/workers/megatron_workers.py",
    line=97,
)


def _examples() -> list[Example]:
    return [
        Example("another engine", (own(), _job("fsdp"), (Gpus, Unknown("")))),
        Example("a device without CUDA", (own(), _job("megatron", "npu"), (Gpus, Unknown("")))),
        Example(
            "verl sets it", (own(row(NAME, None, None, "1", "verl")), _job("megatron"), (Gpus, Unknown("")))
        ),
        Example(
            "unknown whether verl sets it",
            (
                own(row(NAME, None, None, Value(undetermined="unclear"), "verl")),
                _job("megatron"),
                (Gpus, Unknown("")),
            ),
        ),
        Example(
            "the workers set it themselves",
            (
                own(row(NAME, None, None, None, "nobody", later=(_WORKER,))),
                _job("megatron"),
                (Gpus, Unknown("")),
            ),
        ),
        Example(
            "nothing sets it",
            (own(), _job("megatron"), (Gpus, Unknown(""))),
            "do not get CUDA_DEVICE_MAX_CONNECTIONS",
        ),
        Example(
            "another value",
            (own(row(NAME, "8", "8", "8", "the driver")), _job("megatron"), (Gpus, Unknown(""))),
            "get CUDA_DEVICE_MAX_CONNECTIONS=8",
        ),
    ]


@check("ENV114", phase="workers", applies=_needs_it, examples=_examples)
def megatron_lacks_max_connections(
    environment: EffectiveEnvironment, gpus: Gpus | Unknown
) -> Iterator[Finding]:
    """Megatron's workers do not get CUDA_DEVICE_MAX_CONNECTIONS=1.

    ## Why it matters

    On GPUs before Blackwell, Megatron-LM overlaps communication with computation. It relies on the order in
    which kernels are queued, which only a single connection keeps. With tensor parallelism, it refuses to
    start otherwise: `Using tensor model parallelism or context parallelism require setting the environment
    variable CUDA_DEVICE_MAX_CONNECTIONS to 1`. Most releases of verl set the variable, unless your shell sets
    it already. From 0.9 on, verl sets it only if the process that starts the job sees a Hopper or Ampere GPU,
    so not on a head node without GPUs.

    ## How to fix

    Set it to 1 before `ray start` on every node (`verl-doctor fix --output-env DIR` writes the file), or pass
    it with `+ray_kwargs.ray_init.runtime_env.env_vars.CUDA_DEVICE_MAX_CONNECTIONS=1`.
    """
    row = environment.get(NAME)
    value = environment.worker(NAME)
    newer = not isinstance(gpus, Unknown) and any(
        device.capability and int(device.capability.partition(".")[0]) >= _BLACKWELL
        for device in gpus.devices
    )
    given_later = row is not None and any(assigned.value.text == "1" for assigned in row.later)
    if value.undetermined or value.text == "1" or newer or given_later:
        return
    gets = f"get {NAME}={value_text(value)}" if value.text is not None else f"do not get {NAME}"
    yield Finding(
        f"Megatron's workers {gets}",
        Evidence(value_text(value), "1", environment.verl),
        subject=Subject("variable", NAME),
        remedy="set it to 1 before ray start on every node, or in the job's runtime_env",
        severity="warning" if value.text is not None else None,
        fix="one-connection-for-megatron",
    )
