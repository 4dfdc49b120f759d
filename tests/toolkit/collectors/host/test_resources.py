"""Resources of a machine for a job."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, Memory, MigDevice
from verl_doctor.toolkit.collectors.host.limits import ControlGroups, Group, HostLimits, Limits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.resources import Gpu, Resources, resources
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.facts import Absent, Unknown

LIMITS = HostLimits(
    Limits(allowed=8, groups=ControlGroups((Group("/a", cpus=3.5), Group("/b", memory=64 << 30))))
)
TWO = Gpus(
    (Device(0, "NVIDIA A10", capability="8.6", memory=Memory(23028, 0, 23028)), Device(1, "NVIDIA H100"))
)


def seen(gpus: Gpus | Unknown, *visible: int) -> Resources:
    found = resources.collect(gpus, VisibleDevices(visible), LIMITS, HostMemory(1 << 40))
    assert isinstance(found, Resources)
    return found


def test_only_gpus_visible_to_the_job_count() -> None:
    assert seen(TWO, 0, 1).gpus == (Gpu("NVIDIA A10", 23028, "8.6"), Gpu("NVIDIA H100", 0))
    assert [gpu.name for gpu in seen(TWO, 1).gpus or ()] == ["NVIDIA H100"]
    assert seen(TWO).gpus == ()


def test_lost_gpu_is_left_out_and_one_part_of_a_mig_gpu_counts() -> None:
    part = MigDevice("NVIDIA H100 MIG 3g.40gb", "MIG-0123abcd", 40_000)
    found = Gpus(
        (Device(0, trouble="GPU is lost"), Device(1, "NVIDIA H100", mig=True, mig_devices=(part, part)))
    )
    assert seen(found, 0, 1).gpus == (Gpu("NVIDIA H100 MIG 3g.40gb", 40_000),)


def test_unknown_gpus_keep_their_reason() -> None:
    assert (seen(Absent("no GPU here")).gpus, seen(Absent("no GPU here")).why) == (None, "no GPU here")
    assert "hangs" in seen(Gpus(refused="it hangs")).why


def test_cpus_and_memory_are_limited_to_those_of_the_process() -> None:
    assert (seen(TWO).cpus, seen(TWO).memory) == (3.5, 64 << 30)


def test_machine_totals_apply_without_limits() -> None:
    found = resources.collect(TWO, VisibleDevices(()), Unknown("hidden"), HostMemory(1 << 40))
    assert isinstance(found, Resources)
    assert found.cpus
    assert found.memory == 1 << 40
