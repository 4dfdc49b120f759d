"""CUDA145: GPUs are partitioned by MIG."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import GPUS, configured, place
from verl_doctor.checks.shared.gpus import NVML, about, healthy, named, node, of_job
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus, MigDevice
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import counted

_ALL = VisibleDevices(tuple(range(8)))
_PART = MigDevice(name="NVIDIA H200 MIG 3g.71gb", uuid="MIG-0123abcd", memory=72_000)
_DIVIDED = healthy(mig=True, mig_devices=(_PART, _PART))

_NO_SCRIPT = (Configuration, Unknown("no launch script"))


def _examples() -> list[Example]:
    return [
        Example("MIG is off", (node(), _ALL, *configured())),
        Example("one part for a job on one GPU", (node(_DIVIDED), _ALL, *configured(f"{GPUS}=1"))),
        Example(
            "a job on several MIG parts",
            (node(_DIVIDED), _ALL, *configured(f"{GPUS}=2")),
            "cannot work together",
        ),
        Example("MIG is on without parts", (node(healthy(mig=True)), _ALL, _NO_SCRIPT), "has no MIG device"),
    ]


@check("CUDA145", phase="workers", severity="warning", requires={"CUDA140"}, examples=_examples)
def gpu_divided(
    gpus: Gpus, visible: VisibleDevices | Unknown, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """GPUs are partitioned by MIG.

    ## Why it matters

    CUDA shows a process only one part, however many there are, and the parts cannot reach each other by
    NVLink or PCIe (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/). NCCL refuses two ranks there,
    so a job on several parts stops in its first collective. If MIG is on but no part has been created, CUDA
    finds no GPU at all.

    ## How to fix

    Turn MIG off (`nvidia-smi -i N -mig 0`, as root, while nothing uses the GPU), or let the job use one part:
    `trainer.n_gpus_per_node=1` and `CUDA_VISIBLE_DEVICES=MIG-...` (`nvidia-smi -L` shows the names).
    """
    divided = [device for device in of_job(gpus, visible) if device.mig]
    empty = [device for device in divided if not device.mig_devices]
    read_from = f"{NVML}, driver {gpus.driver}"
    if empty:
        yield Finding(
            f"MIG is on for {named(empty)}, but it has no MIG device",
            Evidence(found="MIG on, no MIG device", wanted="MIG off", read_from=read_from),
            remedy="turn MIG off, or create MIG devices",
            severity="error",
            subject=about(empty),
        )
    wanted = configuration.number(GPUS) if isinstance(configuration, Configuration) else None
    parts = [part for device in divided for part in device.mig_devices]
    if parts and wanted is not None and wanted > 1 and isinstance(configuration, Configuration):
        word = configuration.override_of(GPUS)
        yield Finding(
            f"the job requests {wanted:g} GPUs, but {named(divided)} {'is' if len(divided) == 1 else 'are'} "
            f"divided by MIG into parts that cannot work together",
            Evidence(
                found=(
                    f"{counted(len(parts), 'MIG device')}: {', '.join(sorted({part.name for part in parts}))}"
                ),
                wanted="whole GPUs",
                read_from=read_from,
            ),
            location=place(word) if word else None,
            remedy=f"turn MIG off, or use one part: {GPUS}=1",
            severity="error",
            subject=about(divided),
        )
