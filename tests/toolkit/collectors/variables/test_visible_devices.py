"""Interpretation of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus, MigDevice
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.processes.raylets import Raylet, Raylets
from verl_doctor.toolkit.collectors.variables.visible_devices import (
    Choice,
    VisibleDevices,
    chosen,
    visible_devices,
)
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

FOUR = tuple(Device(index, uuid=f"GPU-{index}abcdef{index}") for index in range(4))
DIVIDED = (
    Device(0, uuid="GPU-0abcdef0", mig=True, mig_devices=(MigDevice("x", "MIG-11111111", 1), MigDevice("x", "MIG-22222222", 1))),
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("0,1", (0, 1)),
        (" 3 , 1", (3, 1)),
        ("", ()),
        ("GPU-2abcdef2", (2,)),
        ("GPU-2abcdef2-d72c-4106-c12f-20bd9faed9f6", (2,)),
        ("GPU-1a", (1,)),
        ("1x", (1,)),  # CUDA reads the number at its beginning
    ],
)
def test_devices_are_named_by_number_and_by_uuid(value: str, left: tuple[int, ...]) -> None:
    found = chosen(value, FOUR)
    assert (found.devices, found.stops_at, found.repeated) == (left, None, None)


@pytest.mark.parametrize(
    ("value", "left", "stops_at"),
    [
        ("0,2,-1,1", (0, 2), "-1"),
        ("0,1,2,3,4,5", (0, 1, 2, 3), "4"),
        ("-1", (), "-1"),
        ("NoDevFiles", (), "NoDevFiles"),
        ("GPU-ffffffff-d72c-4106-c12f-20bd9faed9f6,0", (), "GPU-ffffffff"),
        ("GPU-", (), "GPU-"),
        ("0,,1", (0,), ""),
    ],
)
def test_devices_after_an_invalid_entry_are_hidden(value: str, left: tuple[int, ...], stops_at: str) -> None:
    found = chosen(value, FOUR)
    assert (found.devices, found.stops_at) == (left, stops_at)


@pytest.mark.parametrize(("value", "cut"), [("0 1", "0 1"), ("0;1,2", "0;1"), ("1 , 2", None)])
def test_text_after_a_number_is_ignored(value: str, cut: str | None) -> None:
    assert chosen(value, FOUR).cut == cut


@pytest.mark.parametrize("value", ["0,0", "1, 2, 1", "GPU-1abcdef1,GPU-1abcdef1"])
def test_repeated_entry_hides_all_devices(value: str) -> None:
    found = chosen(value, FOUR)
    assert found.devices == ()
    assert found.repeated


def test_mig_devices() -> None:
    assert chosen("MIG-22222222-d72c-4106-c12f-20bd9faed9f6", DIVIDED).devices == (0,)
    assert chosen("MIG-11111111,MIG-22222222", DIVIDED) == Choice("MIG-11111111,MIG-22222222", (0,))
    assert chosen("MIG-33333333", DIVIDED).stops_at == "MIG-33333333"


def collected(*settings: Setting, **environ: str) -> VisibleDevices:
    launch = Launch((), settings) if settings else Unknown("none")
    found = visible_devices.collect(
        Gpus(FOUR), Machine(environ=environ, root=Path("/nowhere")), launch, Unknown("none")
    )
    assert isinstance(found, VisibleDevices)
    return found


def test_unset_variable_shows_all_devices() -> None:
    assert collected() == VisibleDevices((0, 1, 2, 3))


def test_launch_script_overrides_the_shell() -> None:
    found = collected(Setting("CUDA_VISIBLE_DEVICES", "0,1", "run.sh", 3), CUDA_VISIBLE_DEVICES="3")
    assert found.devices == (0, 1)
    assert found.choice == Choice("0,1", (0, 1), path="run.sh", line=3)


def test_script_that_unsets_the_variable() -> None:
    gone = Setting("CUDA_VISIBLE_DEVICES", None, "run.sh", 3, removed=True)
    assert collected(gone, CUDA_VISIBLE_DEVICES="3") == VisibleDevices((0, 1, 2, 3))


def test_undetermined_script_leaves_all_devices_possible() -> None:
    undetermined = Setting("CUDA_VISIBLE_DEVICES", None, "run.sh", 3)
    perhaps = Setting("CUDA_VISIBLE_DEVICES", "0", "run.sh", 4, conditional=True)
    assert collected(undetermined, perhaps, CUDA_VISIBLE_DEVICES="3") == VisibleDevices((0, 1, 2, 3))
    assert collected(perhaps, CUDA_VISIBLE_DEVICES="3").devices == (3,)


def test_raylet_keeps_its_initial_value() -> None:
    raylet = Raylet(77, "", "", "", 1.0, Variables({"CUDA_VISIBLE_DEVICES": "2,8"}))
    other = Raylet(78, "", "", "", 1.0, Variables())
    found = visible_devices.collect(
        Gpus(FOUR), Machine(environ={}), Unknown("none"), Raylets((raylet, other))
    )
    assert found == VisibleDevices((0, 1, 2, 3), raylets=(Choice("2,8", (2,), stops_at="8", raylet=77),))
