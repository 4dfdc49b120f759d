"""Listening processes, and ports configured for a job."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil
import pytest

from verl_doctor.toolkit.collectors.connections.ports import Ports, RequestedPorts, ports
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

NONE = Absent("none was named")


def seen(root: Path, script: str | None = None, **variables: str) -> Ports:
    read: Launch | Unknown = NONE
    if script is not None:
        path = root / "run.sh"
        path.write_text(script)
        found = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}, cwd=root))
        assert isinstance(found, Launch)
        read = found
    answer = ports.collect(Variables(variables), read, Machine(root=root))
    assert isinstance(answer, Ports)
    return answer


def listed(found: Ports) -> dict[str, tuple[int, int, bool]]:
    return {port.what: (port.first, port.last, port.needed) for port in found.wanted}


def test_own_listening_socket_is_found(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        there = seen(tmp_path).on(server.getsockname()[1])
    assert there
    assert (there.pid, there.mine, there.orphan) == (os.getpid(), True, os.getppid() == 1)
    assert there.name


def test_hidden_socket_list_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", refused)
    assert isinstance(ports.collect(Variables(), NONE, Machine()), Unknown)


def test_ephemeral_port_range_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "proc/sys/net/ipv4"
    folder.mkdir(parents=True)
    (folder / "ip_local_port_range").write_text("32768\t60999\n")
    (folder / "ip_local_reserved_ports").write_text("8080,40000-40010\n")
    found = seen(tmp_path)
    assert found.ephemeral == (32768, 60999)
    assert found.reserved == ((8080, 8080), (40000, 40010))


def test_ray_default_ports_are_used(tmp_path: Path) -> None:
    assert listed(seen(tmp_path, "ray start --head\n")) == {
        "ray start --port": (6379, 6379, True),
        "ray start --dashboard-port": (8265, 8265, False),
        "ray start --ray-client-server-port": (10001, 10001, False),
        "the ports of Ray's workers": (10002, 19999, False),
    }


def test_explicit_ports_are_used(tmp_path: Path) -> None:
    words = "--head --port 6380 --dashboard-port=0 --ray-client-server-port $X --node-manager-port=7000"
    found = listed(
        seen(tmp_path, f"P=11000\nray start {words} --min-worker-port=$P --max-worker-port=11100\n")
    )
    assert found == {
        "ray start --port": (6380, 6380, True),
        "ray start --node-manager-port": (7000, 7000, True),
        "the ports of Ray's workers": (11000, 11100, False),
    }


def test_joining_node_uses_only_explicit_ports(tmp_path: Path) -> None:
    assert list(listed(seen(tmp_path, "ray start --address=10.0.0.1:6379\n"))) == [
        "the ports of Ray's workers"
    ]


def test_undetermined_options_may_change_any_port(tmp_path: Path) -> None:
    assert listed(seen(tmp_path, "ray start --head $(options) --node-manager-port=7000\n")) == {
        "ray start --node-manager-port": (7000, 7000, True)
    }
    assert "ray start --port" in listed(
        seen(tmp_path, 'ray start --head --node-ip-address="$(hostname -i)"\n')
    )


def test_trainer_port_is_read(tmp_path: Path) -> None:
    found = seen(
        tmp_path, "export MASTER_PORT=29501\npython -m verl.trainer.main_ppo a=1\n", MASTER_PORT="29500"
    )
    assert found.wanted == (
        RequestedPorts(29500, 29500, "MASTER_PORT of this shell", needed=False),
        RequestedPorts(29501, 29501, "MASTER_PORT", str(tmp_path / "run.sh"), 1, needed=False),
    )
