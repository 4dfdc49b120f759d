"""The network rules on real networks: each test has a private one, with pairs of interfaces, bridges and routes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.running import index_handed_on, ran

pytestmark = pytest.mark.slow

ALONE = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--uts")
# A machine `node77` with one interface to the outside, whose other end does not respond.
ETH0 = """
ip link set lo up
ip link add eth0 type veth peer name outside
ip addr add 10.77.0.5/24 dev eth0
ip link set outside addrgenmode none up
ip link set eth0 up
until grep -q up /sys/class/net/eth0/operstate; do sleep 0.05; done
ip route add default via 10.77.0.1
hostname node77
"""
# What docker compose makes: a bridge that the kernel lists before the interface to the outside, and a container's end in it.
BRIDGE = """
ip link add br-77 type bridge
ip addr add 172.18.0.1/16 dev br-77
ip link add inside type veth peer name veth77
ip link set veth77 master br-77
ip link set inside addrgenmode none up
ip link set veth77 addrgenmode none up
ip link set br-77 up
until grep -q up /sys/class/net/br-77/operstate; do sleep 0.05; done
"""
HEAD = {"RAY_ADDRESS": "10.77.0.9:6379"}


@pytest.fixture(autouse=True)
def allowed() -> None:
    """Skip where a user may not have namespaces of their own."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("there is no unshare or no ip here")
    if subprocess.run([*ALONE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make network namespaces here")


def findings_in(
    tmp_path: Path, network: str, *, hosts: str, deep: bool = False, **environ: str
) -> dict[str, str]:
    """Findings of `check --select NET` in such a network, the first message by code."""
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}\n")
    check = [sys.executable, "-m", "verl_doctor.toolkit", "check", "--select", "NET", "--format", "json"]
    # A mount of /sys shows the interfaces of the network in which it was made.
    script = (
        f'set -e\nmount -t sysfs none /sys\nmount --bind {tmp_path}/hosts /etc/hosts\n{network}\nexec "$@"\n'
    )
    with index_handed_on():
        done = ran(
            [*ALONE, "sh", "-c", script, "sh", *check, *(["--deep"] if deep else [])], tmp_path, environ
        )
    assert done.stdout, done.stderr
    results = json.loads(done.stdout)["results"]
    return {
        result["code"]: result["findings"][0]["message"]
        for result in results
        if any(finding["severity"] != "info" for finding in result["findings"])
    }


def test_debian_hosts_file_on_one_and_on_several_nodes(tmp_path: Path) -> None:
    assert findings_in(tmp_path, ETH0, hosts="127.0.1.1 node77") == {}
    found = findings_in(tmp_path, ETH0, hosts="127.0.1.1 node77", **HEAD)
    assert list(found) == ["NET101"]
    assert found["NET101"].startswith("node77 resolves to 127.0.1.1")
    assert findings_in(tmp_path, ETH0, hosts="127.0.1.1 node77", **HEAD, GLOO_SOCKET_IFNAME="eth0") == {}
    assert findings_in(tmp_path, ETH0, hosts="10.77.0.5 node77", **HEAD) == {}


def test_outdated_address(tmp_path: Path) -> None:
    found = findings_in(tmp_path, ETH0, hosts="10.99.0.5 node77", **HEAD)
    assert list(found) == ["NET102"]
    assert "10.99.0.5, which no interface of this machine has" in found["NET102"]


def test_bridge_that_comes_first(tmp_path: Path) -> None:
    found = findings_in(tmp_path, BRIDGE + ETH0, hosts="10.77.0.5 node77", **HEAD)
    assert list(found) == ["NET105"]
    assert "NCCL connects to the other nodes over br-77, a bridge interface" in found["NET105"]
    assert (
        findings_in(tmp_path, BRIDGE + ETH0, hosts="10.77.0.5 node77", **HEAD, NCCL_SOCKET_IFNAME="=eth0")
        == {}
    )
    found = findings_in(
        tmp_path, BRIDGE + ETH0, hosts="10.77.0.5 node77", **HEAD, NCCL_SOCKET_IFNAME="^lo,docker"
    )
    assert list(found) == ["NET104"]


def test_name_that_resolves_to_a_bridge(tmp_path: Path) -> None:
    environ = {**HEAD, "NCCL_SOCKET_IFNAME": "=eth0"}
    found = findings_in(tmp_path, ETH0 + BRIDGE, hosts="172.18.0.1 node77", **environ)
    assert list(found) == ["NET105"]
    assert "gloo uses br-77" in found["NET105"]


def test_interface_without_a_cable(tmp_path: Path) -> None:
    network = f"{ETH0}ip link set outside down\n"
    environ = {"GLOO_SOCKET_IFNAME": "eth0", "SLURM_JOB_NUM_NODES": "1"}
    found = findings_in(tmp_path, network, hosts="10.77.0.5 node77", **environ)
    assert found == {"NET103": "GLOO_SOCKET_IFNAME=eth0: eth0 is down"}


def test_unreachable_name_server(tmp_path: Path) -> None:
    (tmp_path / "resolv.conf").write_text("nameserver 10.77.0.99\n")
    network = f"{ETH0}mount --bind {tmp_path}/resolv.conf /etc/resolv.conf\n"
    found = findings_in(tmp_path, network, hosts="")
    assert list(found) == ["NET102"]
    assert "node77, hangs" in found["NET102"]


def test_closed_port_at_the_head(tmp_path: Path) -> None:
    away = findings_in(tmp_path, ETH0, hosts="10.77.0.5 node77", deep=True, **HEAD)
    assert list(away) == ["NET116"]
    assert "10.77.0.9:6379" in away["NET116"]
    here = findings_in(tmp_path, ETH0, hosts="10.77.0.5 node77", deep=True, RAY_ADDRESS="10.77.0.5:6379")
    assert "nothing is listening on 10.77.0.5:6379" in here["NET116"]
