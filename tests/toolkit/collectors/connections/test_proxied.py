"""Addresses that HTTP clients would reach through a proxy: with miniatures and with the real clients."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.environments import interpreter

from verl_doctor.toolkit.collectors.connections.proxied import Client, Proxied, proxied
from verl_doctor.toolkit.collectors.launch.environment import Variables, variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.network.network import Interface, Network, Resolved
from verl_doctor.toolkit.collectors.ray.job_nodes import Head, JobNodes
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.variables.job_variables import job_variables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output

HERE = Network(
    Resolved("node1"), (Interface("eth0", "ethernet", up=True, addresses=("10.0.0.5", "fe80::5")),)
)
NODES = JobNodes(heads=(Head("fd00::9", "RAY_ADDRESS", address="fd00::9"),), interface="eth0")
NONE = Absent("none was named")
HOSTS = ("10.0.0.5", "fd00::9", "127.0.0.1", "localhost")


def write(folder: Path, **files: str) -> str:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return str(folder)


def seen(
    environ: Mapping[str, str],
    launch: Launch | Unknown = NONE,
    machine: Machine | None = None,
    environment: EffectiveEnvironment | Unknown = NONE,
) -> Proxied | Unknown:
    machine = machine or Machine(environ={"PATH": os.environ["PATH"], **environ})
    given = variables.collect(machine)
    assert isinstance(given, Variables)
    job = job_variables.collect(given, launch, environment)
    found = proxied.collect(machine, replace(interpreter(), executable=sys.executable), HERE, NODES, job)
    assert isinstance(found, (Proxied, Unknown))
    return found


# A client that reads the environment, like the real one: every unlisted host is proxied.
HTTPX = """
import os
class URL(str):
    pass
class Client:
    _transport = object()
    def __enter__(self):
        return self
    def __exit__(self, *error):
        pass
    def _transport_for_url(self, url):
        return self._transport if url.split("//")[1].rpartition(":")[0].strip("[]") in os.environ.get("no_proxy", "") else None
"""


def test_no_client_is_queried_without_a_proxy() -> None:
    assert isinstance(seen({"no_proxy": "localhost"}), Absent)
    assert isinstance(seen({"http_proxy": ""}), Absent)


def test_each_client_reports_its_route(tmp_path: Path) -> None:
    broken = "raise ImportError('libssl is missing')\n"
    path = write(tmp_path / "site", httpx=HTTPX, requests=broken)
    found = seen(
        {"HTTP_PROXY": "http://me:hunter2@proxy:1", "no_proxy": "127.0.0.1,localhost", "PYTHONPATH": path}
    )
    assert isinstance(found, Proxied)
    assert found == Proxied(
        HOSTS,
        ("HTTP_PROXY",),
        {"no_proxy": "127.0.0.1,localhost"},
        (Client("httpx", HOSTS[:2]), Client("requests", failed="ImportError: libssl is missing")),
    )
    assert "hunter2" not in repr(found)


def test_variables_set_in_a_launch_file_apply(tmp_path: Path) -> None:
    settings = (
        Setting("http_proxy", "http://proxy:1", "run.sh", 2),
        Setting("no_proxy", "10.0.0.5,fd00::9,localhost", "run.sh", 3),
    )
    path = write(tmp_path / "site", httpx=HTTPX, requests="import nothing_of_the_kind\n")
    found = seen({"no_proxy": "*", "PYTHONPATH": path}, Launch((), settings=settings))
    assert isinstance(found, Proxied)
    assert found.clients[0] == Client("httpx", ("127.0.0.1",))
    assert (found.path, found.line) == ("run.sh", 3)


def test_variables_unset_in_a_launch_file_are_removed() -> None:
    gone = Launch((), settings=(Setting("http_proxy", None, "run.sh", 2, removed=True),))
    assert isinstance(seen({"http_proxy": "http://proxy:1"}, gone), Absent)


def test_variables_of_the_workers_apply(tmp_path: Path) -> None:
    """A raylet that was started without the variables gives its workers none, and one that has them gives them its own."""

    def row(name: str, text: str | None) -> Effective:
        return Effective(name, Value("the shell's"), (Value(text),), (Value(text),), "the raylet")

    path = write(tmp_path / "site", httpx=HTTPX, requests="import nothing_of_the_kind\n")
    shell = {"http_proxy": "http://proxy:1", "no_proxy": "*", "PYTHONPATH": path}
    assert isinstance(seen(shell, environment=EffectiveEnvironment((row("http_proxy", None),))), Absent)
    found = seen(
        shell,
        environment=EffectiveEnvironment((row("http_proxy", "http://p:1"), row("no_proxy", "localhost"))),
    )
    assert isinstance(found, Proxied)
    assert found.clients[0] == Client("httpx", HOSTS[:3])


def test_proxy_with_an_undetermined_value_counts(tmp_path: Path) -> None:
    path = write(tmp_path / "site", httpx=HTTPX, requests="import nothing_of_the_kind\n")
    undetermined = Launch((), settings=(Setting("http_proxy", None, "run.sh", 2),))
    found = seen({"PYTHONPATH": path}, undetermined)
    assert isinstance(found, Proxied)
    assert found.clients[0] == Client("httpx", HOSTS)


def test_undetermined_no_proxy_list_is_unknown() -> None:
    undetermined = Launch((), settings=(Setting("no_proxy", None, "run.sh", 2),))
    found = seen({"http_proxy": "http://proxy:1"}, undetermined)
    assert isinstance(found, Unknown)
    assert "no_proxy" in found.reason


@pytest.mark.parametrize(
    "answer", [Output(None, "", "", 8.0), Output(-11, "", "", 0.1), Output(0, "noise", "", 0.1)]
)
def test_silent_child_is_unknown(answer: Output) -> None:
    def run(_argv: Sequence[str], _env: Mapping[str, str], _limit: float) -> Output:
        return answer

    found = seen({}, machine=Machine(environ={"http_proxy": "http://proxy:1"}, runner=run))
    assert isinstance(found, Unknown)
    assert not isinstance(found, Absent)


@pytest.mark.real
def test_real_clients(wheel_tree: Callable[[str, str], Path]) -> None:
    """httpx takes addresses only, requests takes networks too; neither excepts localhost by itself."""
    wheels = {
        "httpx": "0.28.1", "httpcore": "1.0.9", "h11": "0.16.0", "anyio": "4.11.0", "sniffio": "1.3.1",
        "requests": "2.32.5", "urllib3": "2.5.0", "idna": "3.11", "certifi": "2025.10.5", "charset-normalizer": "3.4.4",
        "typing_extensions": "4.15.0",
    }  # fmt: skip
    path = os.pathsep.join(str(wheel_tree(name, version)) for name, version in wheels.items())
    found = seen(
        {"http_proxy": "http://p:1", "NO_PROXY": "10.0.0.0/8,localhost,127.0.0.1", "PYTHONPATH": path}
    )
    assert isinstance(found, Proxied)
    assert found.clients == (Client("httpx", HOSTS[:2]), Client("requests", HOSTS[1:2]))
    found = seen({"all_proxy": "http://p:1", "PYTHONPATH": path})
    assert isinstance(found, Proxied)
    assert found.clients == (Client("httpx", HOSTS), Client("requests", HOSTS))
    found = seen({"all_proxy": "http://p:1", "no_proxy": ",".join(HOSTS), "PYTHONPATH": path})
    assert isinstance(found, Proxied)
    assert found.clients[0] == Client("httpx")
