"""CUDA142: a GPU has broken memory, or the driver wants it reset."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.shared.gpus import NVML, about, alike, healthy, named, node, of_job
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, Health
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check
from verl_doctor.toolkit.text import counted

_ALL = VisibleDevices(tuple(range(8)))


def _examples() -> list[Example]:
    return [
        Example("a healthy node", (node(), _ALL)),
        Example(
            "errors long ago, replaced since",
            (
                node(
                    healthy(
                        health=Health(
                            ecc=True,
                            uncorrected=0,
                            uncorrected_ever=7,
                            remap_pending=False,
                            remap_failed=False,
                        )
                    )
                ),
                _ALL,
            ),
        ),
        Example("a gaming GPU without ECC", (node(healthy(health=Health())), _ALL)),
        Example(
            "errors since the driver was loaded",
            (node(healthy(3, health=Health(ecc=True, uncorrected=2, uncorrected_ever=2))), _ALL),
            "GPU 3: 2 uncorrectable memory errors",
        ),
        Example(
            "a remapping at the next reset",
            (
                node(healthy(health=Health(ecc=True, uncorrected=0, uncorrected_ever=1, remap_pending=True))),
                _ALL,
            ),
            "at the next reset",
        ),
        Example(
            "a remapping that failed",
            (
                node(healthy(health=Health(ecc=True, uncorrected=1, uncorrected_ever=1, remap_failed=True))),
                _ALL,
            ),
            "could not be remapped",
        ),
        Example(
            "all GPUs alike",
            (
                node(
                    *(
                        healthy(
                            number,
                            health=Health(
                                ecc=True, uncorrected=0, uncorrected_ever=number, remap_pending=True
                            ),
                        )
                        for number in range(8)
                    )
                ),
                _ALL,
            ),
            "faulty memory will be remapped at the next reset",
        ),
        Example(
            "the driver requires more",
            (node(healthy(health=Health(recovery="reboot the node"))), _ALL),
            "the driver requests: reboot the node",
        ),
    ]


@check("CUDA142", phase="workers", severity="warning", requires={"CUDA140"}, examples=_examples)
def gpu_memory_errors(gpus: Gpus, visible: VisibleDevices | Unknown) -> Iterator[Finding]:
    """A GPU has faulty memory, or the driver requires a reset.

    ## Why it matters

    An uncorrectable error kills the process that reads the faulty memory, hours into a run (Xid 48, 94, 95),
    and with that rank the whole job. Faulty rows are remapped to spare ones, but only at the next reset of
    the GPU; when no spare rows are left, the GPU must be replaced.

    ## How to fix

    Reset the GPU while nothing uses it (`nvidia-smi --gpu-reset -i N`, as root) or reboot. If it happens
    again, or rows could not be remapped, have the GPU replaced; if the machine is rented, use another one.
    """
    for health, devices in alike(of_job(gpus, visible), _now).items():
        faults = "; ".join(_faults(health))
        if faults:
            yield Finding(
                f"{named(devices)}: {faults}",
                Evidence(found=faults, wanted="none", read_from=f"{NVML}, driver {gpus.driver}"),
                remedy="have the GPU replaced, or use another machine"
                if health.remap_failed
                else "reset the GPU while nothing uses it, or reboot",
                severity="error" if health.remap_failed or health.recovery else None,
                subject=about(devices),
            )


def _now(device: Device) -> Health:
    """The present state of the memory, without history."""
    return replace(device.health, uncorrected_ever=None)


def _faults(health: Health) -> Iterator[str]:
    if health.remap_failed:
        yield "faulty memory could not be remapped, the GPU must be replaced"
    if health.recovery:
        yield f"the driver requests: {health.recovery}"
    if health.remap_pending:
        yield "faulty memory will be remapped at the next reset"
    if health.uncorrected:
        yield f"{counted(health.uncorrected, 'uncorrectable memory error')} since the driver was loaded"
