"""Tries whether the visible GPUs can reduce a tensor together with the target's torch and NCCL.

It also tries possible remedies.

The remedies are ordered by cost. NCCL_NVLS_ENABLE=0: verl-project/verl verl/trainer/constants_ppo.py.
NCCL_CUMEM_HOST_ENABLE=0: NVIDIA/nccl#1838, verl-project/verl#2803. NCCL_P2P_DISABLE, NCCL_SHM_DISABLE:
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.cuda.collective_trial import (
    GRACE,
    LIMIT,
    Remedy,
    Trial,
    trial_of,
    try_collective,
)
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.visible_devices import VISIBLE_DEVICES, VisibleDevices
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_NEEDED = 1536  # MiB of each GPU: CUDA's context and NCCL's buffers

REMEDIES: tuple[Remedy, ...] = (
    (("NCCL_NVLS_ENABLE", "0"),),
    (("NCCL_CUMEM_HOST_ENABLE", "0"),),
    (("NCCL_P2P_DISABLE", "1"),),
    (("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")),
)
"""The remedies to try when plain NCCL fails, the cheapest first.

The first concerns GPUs on NVSwitches only.
"""

WORKAROUNDS = ("NCCL_CUMEM_HOST_ENABLE", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE")
"""Variables removed for the plain trial, which determines whether they are needed."""


@dataclass(frozen=True)
class Collective:
    """Trials on these GPUs in order: plain, and if that failed the remedies up to the first that works."""

    gpus: tuple[int, ...]
    nccl: str
    trials: tuple[Trial, ...]

    @property
    def plain(self) -> Trial:
        """The trial without any remedy."""
        return self.trials[0]

    @property
    def remedy(self) -> Remedy:
        """The variables with which it works if it fails without them, empty if there are none."""
        return self.trials[-1].variables if self.trials[-1].works else ()


@collector(timeout=(LIMIT + GRACE) * (1 + len(REMEDIES)) + 10)
def collective(
    machine: Machine,
    interpreter: Interpreter,
    gpus: Gpus,
    visible: VisibleDevices,
    variables: Variables,
    job: JobVariables,
) -> Collective | Unknown:
    """Try it plain, and while that fails with one remedy after the other."""
    mine = [device for device in gpus.sound if device.index in visible.devices]
    obstacle = _obstacle(mine, gpus)
    if obstacle is not None:
        return obstacle
    numbers = tuple(device.index for device in mine)
    environ = {
        **child_environ(machine, variables, job),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML's
        VISIBLE_DEVICES: ",".join(map(str, numbers)),
        "NCCL_DEBUG": "WARN",
    }
    plain = {name: value for name, value in environ.items() if name not in WORKAROUNDS}
    trials: list[Trial] = []
    version = ""
    for remedy in ((), *_remedies(mine, plain)):
        reported = try_collective(
            machine, interpreter.executable, "nccl", len(mine), {**plain, **dict(remedy)}, LIMIT
        )
        if isinstance(reported, Unknown):
            if trials:
                break
            return reported
        version = version or reported["ranks"][0]["nccl"]
        trials.append(trial_of(remedy, reported))
        if trials[-1].works:
            break
    return Collective(numbers, version, tuple(trials))


def _obstacle(mine: Sequence[Device], gpus: Gpus) -> Unknown | None:
    """Return the reason why nothing is tried."""
    if len(mine) < 2:
        return Absent(
            f"a collective needs two GPUs, and {len(mine)} of {len(gpus.devices)} are visible to the job"
        )
    if any(device.mig for device in mine):
        return Absent("NCCL does not run on MIG devices")
    for device in mine:
        if device.memory and device.memory.free < _NEEDED:
            return Unknown(f"GPU {device.index} has only {device.memory.free} MiB free, too little to try")
    return None


def _remedies(mine: Sequence[Device], environ: Mapping[str, str]) -> Iterator[Remedy]:
    """Yield remedies that may change something: none already used, no multicast without switches."""
    switches = any(device.fabric.state == "completed" for device in mine)
    for remedy in REMEDIES:
        needless = remedy[0][0] == "NCCL_NVLS_ENABLE" and not switches
        has = all(environ.get(name) == value for name, value in remedy)
        if not needless and not has:
            yield remedy
