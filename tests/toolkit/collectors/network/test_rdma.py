"""InfiniBand and RoCE adapters, from small recorded trees of `/sys` and `/dev`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.network.rdma import Port, Rdma, rdma
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine


def write(root: Path, files: dict[str, str]) -> Machine:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(root=root)


def port(adapter: str, **files: str) -> dict[str, str]:
    """The files of an adapter's first port; a double underscore in a name is a folder."""
    reported = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "link_layer": "InfiniBand\n",
        "rate": "400 Gb/sec (4X NDR)\n",
    }
    return {
        f"sys/class/infiniband/{adapter}/ports/1/{name.replace('__', '/')}": text
        for name, text in {**reported, **files}.items()
    }


def test_machine_without_adapters(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net").mkdir(parents=True)
    assert isinstance(rdma.collect(Machine(root=tmp_path)), Absent)


def test_container_without_infiniband_in_sys_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    answer = rdma.collect(Machine(root=tmp_path))
    assert isinstance(answer, Unknown)
    assert not isinstance(answer, Absent)


def test_ports_and_their_addresses(tmp_path: Path) -> None:
    empty = "0000:0000:0000:0000:0000:0000:0000:0000\n"
    roce = port(
        "mlx5_1",
        link_layer="Ethernet\n",
        state="1: DOWN\n",
        phys_state="3: Disabled\n",
        gids__0="fe80:0000:0000:0000:0a00:00ff:fe00:0001\n",
        gid_attrs__types__0="IB/RoCE v1\n",
        gids__1=empty,
        gids__10="0000:0000:0000:0000:0000:ffff:0a00:0005\n",
        gid_attrs__types__10="RoCE v2\n",
    )
    devices = {"dev/infiniband/uverbs0": "", "dev/infiniband/rdma_cm": ""}
    found = rdma.collect(write(tmp_path, {**port("mlx5_0"), **roce, **devices}))
    assert found == Rdma(
        (
            Port("mlx5_0", 1, "ACTIVE", "LinkUp", "InfiniBand", "400 Gb/sec (4X NDR)"),
            Port(
                "mlx5_1",
                1,
                "DOWN",
                "Disabled",
                "Ethernet",
                "400 Gb/sec (4X NDR)",
                ((0, "IB/RoCE v1"), (10, "RoCE v2")),
            ),
        ),
        ("/dev/infiniband/uverbs0",),
    )
    assert [str(adapter) for adapter in found.active] == ["mlx5_0:1"]


def test_devices_without_permission_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = write(tmp_path, {**port("mlx5_0"), "dev/infiniband/uverbs0": ""})
    monkeypatch.setattr(os, "access", lambda path, _: "uverbs" not in str(path))
    found = rdma.collect(machine)
    assert isinstance(found, Rdma)
    assert found.closed == found.devices == ("/dev/infiniband/uverbs0",)
