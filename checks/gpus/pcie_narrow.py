"""CUDA149: a GPU is connected with fewer PCIe lanes than it has."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, about, healthy, named, node, of_job, of_laptop
from verl_doctor.toolkit.collectors.gpu.gpus import Bus, Device, Gpus
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_ALL = VisibleDevices(tuple(range(8)))


def _examples() -> list[Example]:
    return [
        Example("all lanes", (node(), _ALL)),
        Example(
            "an idle link of a lower generation",
            (node(healthy(bus=Bus(width=16, width_most=16, generation=1, generation_most=5))), _ALL),
        ),
        Example(
            "a laptop",
            (
                node(
                    healthy(
                        name="NVIDIA GeForce RTX 4070 Laptop GPU",
                        bus=Bus(width=8, width_most=16, generation=1, generation_most=4),
                    )
                ),
                _ALL,
            ),
        ),
        Example("a virtual machine that does not report it", (node(healthy(bus=None)), _ALL)),
        Example(
            "slots with four lanes",
            (
                node(
                    healthy(bus=Bus(width=4, width_most=16, generation=4, generation_most=4)),
                    healthy(1, bus=Bus(width=4, width_most=16, generation=4, generation_most=4)),
                ),
                _ALL,
            ),
            "GPUs 0, 1 are connected with 4 of 16 PCIe lanes",
        ),
        Example(
            "one GPU of many",
            (
                node(healthy(), healthy(1, bus=Bus(width=8, width_most=16, generation=5, generation_most=5))),
                _ALL,
            ),
            "GPU 1 is connected with 8 of 16 PCIe lanes, others of its kind with 16",
        ),
    ]


@check("CUDA149", severity="info", requires={"CUDA140"}, examples=_examples)
def pcie_narrow(gpus: Gpus, visible: VisibleDevices | Unknown) -> Iterator[Finding]:
    """A GPU is connected with fewer PCIe lanes than it supports.

    ## Why it matters

    Offloaded parameters and optimizer states, and weights at the start, go over PCIe, as do all collectives
    without NVLink. On consumer mainboards the slots have few lanes, which cannot be changed. If only one of
    several GPUs has fewer lanes, it is not seated well, or its riser or slot is broken.

    ## How to fix

    If only one of several GPUs is affected, have it reseated. Otherwise prefer settings that move less data,
    such as no offload if the memory allows it.
    """
    mine = [device for device in of_job(gpus, visible) if device.bus and not of_laptop(device)]
    narrow = [device for device in mine if _lanes(device) < _most(device)]
    for lanes in sorted({_lanes(device) for device in narrow}):
        same = [device for device in narrow if _lanes(device) == lanes]
        others = max(_lanes(other) for other in mine if other.name == same[0].name)
        odd = others > lanes
        yield Finding(
            (
                f"{named(same)} {'is' if len(same) == 1 else 'are'} connected with {lanes} of "
                f"{_most(same[0])} PCIe lanes"
            )
            + (f", others of its kind with {others}" if odd else ""),
            Evidence(
                found=f"{lanes} lanes",
                wanted=f"{_most(same[0])} lanes",
                read_from=f"{NVML}, driver {gpus.driver}",
            ),
            remedy="have the GPU reseated, or exclude it with CUDA_VISIBLE_DEVICES"
            if odd
            else "avoid offload if the GPU memory allows it",
            severity="warning" if odd else None,
            subject=about(same),
        )


def _lanes(device: Device) -> int:
    return device.bus.width if device.bus else 0


def _most(device: Device) -> int:
    return device.bus.width_most if device.bus else 0
