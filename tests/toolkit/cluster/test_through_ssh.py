"""Hosts queried by ssh or srun, which are replaced by a program that runs the command on this machine."""

from __future__ import annotations

import functools
import json
import os
import stat
import sys
from pathlib import Path

import psutil
import pytest
from support.running import Doctor

from verl_doctor.toolkit.cluster.node_parcel import Parcel, packed
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.cluster.through_ssh import command, host_responses, shown
from verl_doctor.toolkit.machine import Machine

# As ssh: the words after the host are one line for the remote shell. `gone` is an unknown host.
SSH = """#!/bin/sh
[ "$1 $2 $3 $4" = "-o BatchMode=yes -o ConnectTimeout=10" ] || exit 9
echo "Welcome to $5" >&2
case $5 in
  gone) echo "ssh: Could not resolve hostname gone: Name or service not known" >&2; exit 255;;
  hangs) exec sleep 600;;
esac
echo "motd on stdout"
exec sh -c "$6"
"""
SRUN = """#!/bin/sh
shift 4
host=$1; shift
export SLURMD_NODENAME=${host#--nodelist=}
exec "$@"
"""


@functools.cache
def parcel() -> Parcel:
    return Parcel(
        packed(
            ["verl_doctor.toolkit.collectors.host.clock", "verl_doctor.toolkit.collectors.launch.environment"]
        ),
        {
            "modules": [
                "verl_doctor.toolkit.collectors.host.clock",
                "verl_doctor.toolkit.collectors.launch.environment",
            ],
            "facts": ["Clock", "Variables"],
            "target": {
                "verl": "",
                "vllm": "",
                "model": "",
                "model_by": "",
                "libraries": [],
                "files": [],
                "words": [],
                "data": [],
                "ray_address": "",
            },
            "marker": "verl-doctor",
            "cwd": "/",
            "given": {},
        },
    )


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("ssh", SSH), ("srun", SRUN)):
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def query(
    *hosts: str, via: str = "ssh", python: str = sys.executable, budget: float = 120
) -> dict[str, NodeResponse]:
    answers = host_responses(Machine(), hosts, via, python, parcel(), budget)  # type: ignore[arg-type]
    return {answer.node: answer for answer in answers}


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_unreachable_ssh_host_is_named_and_the_others_respond() -> None:
    responses = query("n1", "gone", "n2")
    assert {name: answer.missing for name, answer in responses.items()} == {
        "n1": "",
        "n2": "",
        "gone": "ssh: Could not resolve hostname HOST: Name or service not known",
    }
    assert set(responses["n1"].facts) == {"Clock", "Variables"}


@pytest.mark.usefixtures("programs")
def test_srun_passes_its_variables() -> None:
    responses = query("n7", via="srun")
    assert json.loads(responses["n7"].facts["Variables"])["is"]["values"].get("SLURMD_NODENAME") is None
    assert responses["n7"].missing == ""


@pytest.mark.usefixtures("programs")
def test_missing_remote_python_is_reported() -> None:
    (answer,) = query("n1", python="/nowhere/bin/python").values()
    assert "/nowhere/bin/python" in answer.missing
    assert "not found" in answer.missing


@pytest.mark.usefixtures("programs")
@pytest.mark.slow
def test_hanging_host_is_abandoned_and_leaves_no_processes() -> None:
    before = {process.pid for process in psutil.process_iter()}
    responses = query("hangs", "n1", budget=20)
    assert responses["hangs"].missing == "it did not respond in time"
    assert responses["n1"].missing == ""
    own = [child for child in psutil.Process().children(recursive=True) if child.pid not in before]
    assert own == []


def test_missing_ssh_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (answer,) = query("n1").values()
    assert answer.missing == "ssh cannot be started: No such file or directory"


def test_printed_command_matches_the_executed_one() -> None:
    assert shown("ssh", "/envs/a b/bin/python") == (
        "ssh -o BatchMode=yes -o ConnectTimeout=10 HOST "
        """''"'"'/envs/a b/bin/python'"'"' -I -S -c PROGRAM TOKEN'"""
    )
    assert command("srun", "n1", "/p", "text", "token")[-7:] == [
        "--nodelist=n1", "/p", "-I", "-S", "-c", "text", "token",
    ]  # fmt: skip


@pytest.mark.usefixtures("programs")
@pytest.mark.slow
def test_check_judges_the_hosts(here: Doctor, tmp_path: Path) -> None:
    done = here(
        "check",
        "--nodes",
        "n[1-2],gone",
        "--python",
        sys.executable,
        "--format",
        "json",
        "--select",
        "HOST130",  # their limits: alike, as both are this machine
        cwd=tmp_path,
    )
    report = json.loads(done.stdout)
    assert "queries 3 nodes: ssh" in done.stderr
    assert report["nodes"]["answered"] == 2
    assert report["nodes"]["missing"][0]["nodes"] == "gone"
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--cluster", "--nodes", "n1"), "choose either --cluster"),
        (("--nodes", ""), "does not name a host"),
        (("--nodes", ",", "--via", "srun"), "does not name a host"),
        (("--nodes", "-oProxyCommand=x"), "'-oProxyCommand=x' is not a host name"),
        (("--nodes", "n[1-x]"), "for instance node[001-004,007]"),
        (("--via", "ssh"), "--via requires --nodes HOSTS"),
        (("--budget", "30"), "--budget requires --cluster or --nodes HOSTS"),
        (("--cluster", "--budget", "0"), "0 is too short; the minimum is 5s"),
        (("--cluster", "--budget", "1w"), "'1w' is not a duration"),
        (("--cluster", "--budget", "inf"), "is not a duration"),
        (("--cluster", "--budget", "nan"), "is not a duration"),
        (("--cluster", "--facts", "x.json"), "options that query nodes"),
    ],
)
def test_invalid_options_are_refused(
    here: Doctor, tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    done = here("check", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
