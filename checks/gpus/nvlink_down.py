"""CUDA148: a GPU has fewer active NVLinks than others of its kind on this machine."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, about, alike, healthy, named, node, of_job
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_ALL = VisibleDevices(tuple(range(8)))


def _card(index: int) -> Device:
    return healthy(index, name="NVIDIA H100 PCIe", links_active=0)


def _examples() -> list[Example]:
    return [
        Example("all links are up", (node(), _ALL)),
        Example("cards without bridges", (node(_card(0), _card(1)), _ALL)),
        Example("a single GPU of a larger machine", (node(healthy(links_active=0)), _ALL)),
        Example(
            "links are down",
            (node(healthy(), healthy(1, links_active=12)), _ALL),
            "GPU 1 has 12 active NVLinks, but others here have 18",
        ),
        Example(
            "half of a node",
            (node(*(healthy(number, links_active=18 if number < 4 else 0) for number in range(8))), _ALL),
            "GPUs 4-7 have 0 active NVLinks",
        ),
    ]


@check("CUDA148", severity="warning", requires={"CUDA140"}, examples=_examples)
def nvlink_down(gpus: Gpus, visible: VisibleDevices | Unknown) -> Iterator[Finding]:
    """A GPU has fewer active NVLinks than others of its kind on this machine.

    ## Why it matters

    Every collective waits for the GPU with the least bandwidth, and without any link its traffic goes over
    PCIe, ten times slower. A link that is down at the start is often followed by links that fail during a run
    (Xid 74).

    ## How to fix

    Check the links (`nvidia-smi nvlink -s`, `nvidia-smi nvlink -e`), reset the GPUs or reboot; if the machine
    is rented, use another one. A job on few GPUs can exclude this one with CUDA_VISIBLE_DEVICES.
    """
    mine = of_job(gpus, visible)
    most_of = {
        name: max(device.links_active for device in same)
        for name, same in alike(mine, lambda device: device.name).items()
    }
    for (name, active), devices in alike(mine, lambda device: (device.name, device.links_active)).items():
        most = most_of[name]
        if active < most:
            yield Finding(
                (
                    f"{named(devices)} {'has' if len(devices) == 1 else 'have'} {active} active NVLinks, "
                    f"but others here have {most}"
                ),
                Evidence(
                    found=f"{active} active",
                    wanted=f"{most} active",
                    read_from=f"{NVML}, driver {gpus.driver}",
                ),
                remedy="reset the GPUs or reboot, then check the links: nvidia-smi nvlink -s",
                subject=about(devices),
            )
