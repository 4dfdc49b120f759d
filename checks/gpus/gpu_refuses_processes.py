"""CUDA146: a GPU allows only one process, or none."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, about, healthy, named, node, of_job
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.gpu.holders import Holder
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_ALL = VisibleDevices(tuple(range(8)))
_EFFECTS = {
    "exclusive process": "one process at a time, but verl's trainer and rollout engine are two processes",
    "exclusive thread": "one process at a time, but verl's trainer and rollout engine are two processes",
    "prohibited": "no process",
}


def _examples() -> list[Example]:
    return [
        Example("open to all", (node(), _ALL, Variables())),
        Example(
            "shared out by MPS",
            (
                node(
                    healthy(
                        compute_mode="exclusive process",
                        holders=(Holder(pid=5, memory=30, title="nvidia-cuda-mps-server"),),
                    )
                ),
                _ALL,
                Variables(),
            ),
        ),
        Example(
            "a client of MPS",
            (
                node(healthy(compute_mode="exclusive process")),
                _ALL,
                Variables({"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps"}),
            ),
        ),
        Example(
            "one process at a time",
            (node(healthy(compute_mode="exclusive process")), _ALL, Variables()),
            "GPU 0 allows one process at a time",
        ),
        Example(
            "closed",
            (node(healthy(compute_mode="prohibited"), healthy(1)), _ALL, Variables()),
            "GPU 0 allows no process",
        ),
    ]


@check("CUDA146", phase="workers", requires={"CUDA140"}, examples=_examples)
def gpu_refuses_processes(
    gpus: Gpus, visible: VisibleDevices | Unknown, variables: Variables
) -> Iterator[Finding]:
    """A GPU allows only one process, or none.

    ## Why it matters

    The compute mode is a setting of the driver that sites use for batch jobs. The trainer and the rollout
    engine share each GPU, and the second process fails with `CUDA error: CUDA-capable device(s) is/are busy
    or unavailable`.

    ## How to fix

    As root, set the default mode: `nvidia-smi -i N -c DEFAULT`. A scheduler may change it again for each job.
    With NVIDIA's MPS the only process is its server, which many clients share: then the mode is right.
    """
    for mode, effect in _EFFECTS.items():
        closed = [
            device
            for device in of_job(gpus, visible)
            if device.compute_mode == mode and (mode == "prohibited" or not _is_shared(device, variables))
        ]
        if closed:
            yield Finding(
                f"{named(closed)} allow{'s' if len(closed) == 1 else ''} {effect}",
                Evidence(
                    found=f"compute mode: {mode}",
                    wanted="compute mode: default",
                    read_from=f"{NVML}, driver {gpus.driver}",
                ),
                remedy="run as root: nvidia-smi -c DEFAULT",
                subject=about(closed),
            )


def _is_shared(device: Device, variables: Variables) -> bool:
    """Whether the only process is the server of NVIDIA's MPS, which shares the GPU."""
    return bool(variables.get("CUDA_MPS_PIPE_DIRECTORY")) or any(
        "nvidia-cuda-mps" in holder.title for holder in device.holders
    )
