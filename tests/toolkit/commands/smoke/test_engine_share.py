"""The engine of a trial gets the memory that its model needs, within what is free on its GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, Memory
from verl_doctor.toolkit.collectors.variables.visible_devices import VisibleDevices
from verl_doctor.toolkit.commands.smoke.engine_share import engine_share
from verl_doctor.toolkit.engine.collect import Collection

GIB = 1 << 30
EMPTY = Memory(143_771, 600, 142_500, 671)  # MiB, as NVML reports them for an H200
H200 = tuple(Device(number, "NVIDIA H200", memory=EMPTY) for number in range(2))
TAKEN = replace(H200[0], memory=Memory(143_771, 125_000, 18_100, 671))


def share(
    *devices: Device, weights: int = 0, parallel: int = 1, sees: tuple[int, ...] = (0, 1)
) -> float | None:
    facts = Collection((), {Gpus: Gpus(devices), VisibleDevices: VisibleDevices(sees)})
    return engine_share(facts, weights, parallel)


def test_tiny_model_gets_a_few_gib_of_a_large_gpu() -> None:
    assert share(*H200) == 0.043


@pytest.mark.parametrize(("parallel", "wanted"), [(1, 0.177), (2, 0.11)])
def test_weights_are_divided_among_gpus(parallel: int, wanted: float) -> None:
    assert share(*H200, weights=15 * GIB, parallel=parallel) == wanted


def test_share_is_limited_by_free_memory() -> None:
    assert share(TAKEN, H200[1], weights=100 * GIB) == 0.114
    assert share(TAKEN, H200[1], weights=100 * GIB, sees=(1, 0)) == 0.896


def test_unknown_values_give_no_share() -> None:
    assert share() is None
    assert share(replace(H200[0], memory=None)) is None
    assert share(replace(H200[0], mig=True)) is None
    assert share(*H200, parallel=4) is None
    assert engine_share(Collection((), {}), 0, 1) is None
