"""Three hosts on a private network, one of which is disconnected during the query."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import alone
from support.ray import head, hosts

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=110), pytest.mark.usefixtures("index_at_hand")]


@pytest.fixture
def python() -> Path:
    if not shutil.which("ip") or not alone.possible():
        pytest.skip("this user may not make network namespaces here")
    return head.environment() / "bin" / "python"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: sockets lie in it."""
    made = Path(tempfile.mkdtemp(prefix="vd-", dir="/tmp"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_disconnected_host_is_named_and_the_others_are_judged(python: Path, folder: Path) -> None:
    check = [sys.executable, "-m", "verl_doctor.toolkit", "check", "--cluster", "--budget", "180"]
    check += ["--python", str(python), "--ray-address", f"{hosts.NETWORK}.1:{hosts.PORT}"]
    check += ["--select", "HOST130", "--format", "json"]  # their limits: alike, as all are this machine
    done = subprocess.run(
        [*alone.ALONE, sys.executable, hosts.__file__, str(python), str(folder), *check],
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
        env={**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
        cwd=folder,
    )
    assert done.stdout, done.stderr
    nodes = json.loads(done.stdout)["nodes"]
    assert nodes["answered"] == 2
    (missing,) = nodes["missing"]
    assert missing["nodes"] == "n3"
    assert missing["what"].startswith(("it started no worker in time", "Ray declared it dead"))
    assert done.returncode == 3
    deadline = time.monotonic() + 60
    while (left := list(head.below(folder))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []  # the kernel ends them with the first process of their space
