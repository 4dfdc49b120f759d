"""CUDA154: the job's GPUs are of different kinds."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, about, gib, healthy, named, node, of_job
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, Memory
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_ORDER = "CUDA_DEVICE_ORDER"
_ALL = VisibleDevices(tuple(range(8)))
_SMALL = healthy(1, name="NVIDIA A10", memory=Memory(total=23028, used=0, free=22512, reserved=516))
_BY_BUS = Variables({_ORDER: "PCI_BUS_ID"})


def _examples() -> list[Example]:
    return [
        Example("eight of a kind", (node(), _ALL, Variables())),
        Example("the other GPU is hidden", (node(healthy(), _SMALL), VisibleDevices((0,)), Variables())),
        Example(
            "an additional GPU for a display",
            (node(healthy(), _SMALL), _ALL, Variables()),
            "GPU 0 (NVIDIA H200, 139.8 GiB), GPU 1 (NVIDIA A10, 22.0 GiB)",
        ),
        Example(
            "numbered as nvidia-smi does", (node(healthy(), _SMALL), _ALL, _BY_BUS), "of different kinds"
        ),
    ]


@check("CUDA154", severity="warning", requires={"CUDA140"}, examples=_examples)
def gpus_of_different_kinds(
    gpus: Gpus, visible: VisibleDevices | Unknown, variables: Variables
) -> Iterator[Finding]:
    """The job's GPUs are of different kinds.

    ## Why it matters

    All ranks get the same share of the work and of the model: the GPU with the least memory runs out first,
    and all wait for the slowest. CUDA numbers the fastest GPU first, but nvidia-smi numbers GPUs by PCI bus,
    so a number in CUDA_VISIBLE_DEVICES may mean a different GPU than in nvidia-smi.

    ## How to fix

    List GPUs of one kind in CUDA_VISIBLE_DEVICES, with CUDA_DEVICE_ORDER=PCI_BUS_ID so that the numbers match
    nvidia-smi's.
    """
    mine = of_job(gpus, visible)
    kinds: dict[tuple[str, int], list[Device]] = {}
    for device in mine:
        kinds.setdefault((device.name, device.memory.total if device.memory else 0), []).append(device)
    if len(kinds) < 2:
        return
    kinds_text = ", ".join(_described(same) for same in kinds.values())
    most = max(kinds.values(), key=len)
    order = "" if variables.get(_ORDER) == "PCI_BUS_ID" else f"{_ORDER}=PCI_BUS_ID "
    yield Finding(
        f"the GPUs of the job are of different kinds: {kinds_text}",
        Evidence(found=kinds_text, wanted="one kind", read_from=f"{NVML}, driver {gpus.driver}"),
        remedy=(
            "use GPUs of one kind, for instance "
            f"{order}CUDA_VISIBLE_DEVICES={','.join(str(device.index) for device in most)}"
        ),
        subject=about(mine),
    )


def _described(same: list[Device]) -> str:
    memory = same[0].memory
    return f"{named(same)} ({same[0].name}{f', {gib(memory.usable)}' if memory else ''})"
