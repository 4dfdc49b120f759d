"""CUDA147: GPUs are not registered with the NVSwitch fabric."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.gpus import NVML, about, alike, healthy, named, node, of_job
from verl_doctor.toolkit.collectors.gpu.gpus import Fabric, Gpus
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, check

_ALL = VisibleDevices(tuple(range(8)))


def _examples() -> list[Example]:
    return [
        Example("registered", (node(), _ALL)),
        Example("GPUs without NVSwitch", (node(healthy(fabric=Fabric())), _ALL)),
        Example("a driver that does not report it", (node(healthy(fabric=Fabric("unknown (7)"))), _ALL)),
        Example(
            "the fabric manager does not run",
            (node(healthy(fabric=Fabric("in progress"))), _ALL),
            "in progress",
        ),
        Example(
            "registration failed",
            (node(healthy(fabric=Fabric(state="completed", status=999))), _ALL),
            "failed (status 999)",
        ),
        Example(
            "registration failed for all GPUs",
            (
                node(*(healthy(number, fabric=Fabric(state="completed", status=999)) for number in range(8))),
                _ALL,
            ),
            "the registration of GPUs 0-7 with the NVSwitch fabric failed",
        ),
        Example(
            "a route is down",
            (
                node(healthy(fabric=Fabric(state="completed", status=0, troubles=("an unhealthy route",)))),
                _ALL,
            ),
            "an unhealthy route",
        ),
    ]


@check("CUDA147", phase="workers", requires={"CUDA140"}, examples=_examples)
def nvswitch_fabric_not_ready(gpus: Gpus, visible: VisibleDevices | Unknown) -> Iterator[Finding]:
    """GPUs are not registered with the NVSwitch fabric.

    ## Why it matters

    On machines with NVSwitch, CUDA does not start before the fabric manager has registered the GPUs: every
    program fails with `Error 802: system not yet initialized`, even one that uses a single GPU.

    ## How to fix

    Ask the administrator to run `systemctl status nvidia-fabricmanager`; its version must match the driver's.
    After a boot, registration takes a minute. In a rented container or virtual machine it cannot be repaired
    from inside: use another machine.
    """
    mine = of_job(gpus, visible)
    read_from = f"{NVML}, driver {gpus.driver}"
    for state in ("not started", "in progress"):
        waiting = [device for device in mine if device.fabric.state == state]
        if waiting:
            yield Finding(
                (
                    f"the registration of {named(waiting)} with the NVSwitch fabric is {state}: CUDA fails "
                    "with error 802"
                ),
                Evidence(found=f"fabric state: {state}", wanted="completed", read_from=read_from),
                remedy=(
                    f"run nvidia-fabricmanager {gpus.driver} on the host; if the machine is rented, use "
                    "another one"
                ),
                stops=(EVERY_JOB,),
                subject=about(waiting, state),
            )
    for fabric, devices in alike(mine, lambda device: device.fabric).items():
        if fabric.state == "completed" and fabric.status:
            yield Finding(
                (
                    f"the registration of {named(devices)} with the NVSwitch fabric failed (status "
                    f"{fabric.status})"
                ),
                Evidence(found=f"fabric status: {fabric.status}", wanted="0: success", read_from=read_from),
                remedy=(
                    "read the log of nvidia-fabricmanager on the host; if the machine is rented, use "
                    "another one"
                ),
                subject=about(devices, f"status {fabric.status}"),
            )
        elif fabric.troubles:
            yield Finding(
                f"the NVSwitch fabric has {', '.join(fabric.troubles)} at {named(devices)}",
                Evidence(found=", ".join(fabric.troubles), wanted="a healthy fabric", read_from=read_from),
                remedy=(
                    "check NVLinks and switches: nvidia-smi nvlink -s, and the log of nvidia-fabricmanager"
                ),
                severity="warning",
                subject=about(devices, ",".join(fabric.troubles)),
            )
