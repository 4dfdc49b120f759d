"""CUDA146: a GPU lets one process in, or none."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks._gpus import NVML, healthy, named, node, of_job
from verl_doctor.toolkit.fact_gpus import Gpus
from verl_doctor.toolkit.fact_visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_ALL = VisibleDevices(tuple(range(8)))
_EFFECTS = {
    "exclusive process": "one process at a time, and verl's trainer and rollout engine are two",
    "exclusive thread": "one process at a time, and verl's trainer and rollout engine are two",
    "prohibited": "no process",
}


@check(
    "CUDA146",
    examples=[
        Example("open to all", (node(), _ALL)),
        Example("one at a time", (node(healthy(compute_mode="exclusive process")), _ALL), "GPU 0 lets in one process at a time"),
        Example("closed", (node(healthy(compute_mode="prohibited"), healthy(1)), _ALL), "GPU 0 lets in no process"),
    ],
)  # fmt: skip
def gpu_refuses_processes(gpus: Gpus, visible: VisibleDevices | Unknown) -> Iterator[Finding]:
    """A GPU lets one process in, or none.

    ## Why it matters

    The compute mode is a setting of the driver that sites use for batch jobs. The trainer and the rollout engine share each
    GPU, and the second that comes gets `CUDA error: CUDA-capable device(s) is/are busy or unavailable`.

    ## How to fix

    Set the default mode, as administrator: `nvidia-smi -i N -c DEFAULT`. A scheduler may set it again for each job.
    """
    for mode, effect in _EFFECTS.items():
        closed = [device for device in of_job(gpus, visible) if device.compute_mode == mode]
        if closed:
            yield Finding(
                f"{named(closed)} let{'s' if len(closed) == 1 else ''} in {effect}",
                Evidence(
                    found=f"compute mode: {mode}",
                    wanted="compute mode: default",
                    read_from=f"{NVML}, driver {gpus.driver}",
                ),
                remedy="as administrator: nvidia-smi -c DEFAULT",
            )
