"""Verl's released classes on a real Ray: leftovers of a training while its process lives, before and after the repair."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.ray import head as ray_head
from support.ray import training_driver
from support.trying import thorough

from verl_doctor.checks.leftovers.servers_outlive_training import servers_outlive_training
from verl_doctor.patches.source.servers_end_with_training import servers_end_with_training
from verl_doctor.toolkit.change import ReplaceFile
from verl_doctor.toolkit.collectors.configuration.rollout_servers import RolloutServers, rollout_servers
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding
from verl_doctor.toolkit.testing import run_check

pytestmark = [pytest.mark.real, pytest.mark.slow]

NOTHING = Absent("no launch script was named")
_MANAGERS = {
    "0.4.0": ("workers/rollout/async_server.py", "AsyncLLMServerManager"),
    "0.4.1": ("workers/rollout/async_server.py", "AsyncLLMServerManager"),
    "0.5.0": ("experimental/agent_loop/agent_loop.py", "AgentLoopManager"),
}


@pytest.fixture(scope="module")
def head() -> Iterator[ray_head.Head]:
    python = ray_head.environment() / "bin" / "python"
    with ray_head.head(python, "", "--num-cpus=4") as at:
        yield at


def servers_of(verl: Path) -> RolloutServers:
    found = rollout_servers.collect(
        VerlTrees(Tree(str(verl), "verl", "", ""), ""), NOTHING, NOTHING, Machine(cwd=verl)
    )
    assert isinstance(found, RolloutServers)
    return found


def repaired(verl: Path) -> None:
    """Carry the plan out, and see that the rule is silent and a second plan empty."""
    plan = servers_end_with_training.plan(
        Finding("", Evidence("")), servers_of(verl), SourceFiles(), Marker("verl-doctor")
    )
    assert isinstance(plan, list)
    for change in plan:
        assert isinstance(change, ReplaceFile)
        change.path.write_bytes(change.after)
    again = servers_of(verl)
    result = run_check(servers_outlive_training, again)
    assert result.status == "pass", result.findings
    assert not servers_end_with_training.plan(
        Finding("", Evidence("")), again, SourceFiles(), Marker("verl-doctor")
    )


def trained(
    head: ray_head.Head, verl: Path, release: str, how: str, number: int = 0, patience: int = 120
) -> tuple[list[dict[str, Any]], int]:
    """Counts by the driver before and after, and engines left after its end."""
    source, manager = _MANAGERS[release]
    trainer = verl / "trainer/ppo/ray_trainer.py"
    environ = {
        **os.environ,
        "RAY_TMPDIR": str(head.folder),
        "HOME": str(head.folder),
        "RAY_AUTH_MODE": "disabled",
    }
    command = [
        head.python,
        training_driver.__file__,
        head.address,
        verl / source,
        manager,
        trainer,
        how,
        patience,
    ]
    complaints = verl.parent / "stderr"
    with complaints.open("w") as file:
        driver = subprocess.Popen(
            [*map(str, command)], env=environ, stdout=subprocess.PIPE, stderr=file, text=True
        )
    assert driver.stdout is not None
    limit = threading.Timer(600, driver.kill)
    limit.start()
    try:
        lines = [driver.stdout.readline()]
        if number:
            while (line := driver.stdout.readline()) and "waits" not in line:
                pass
            driver.send_signal(number)
        rest, _ = driver.communicate()
    finally:
        limit.cancel()
        driver.kill()
    counted = [json.loads(line) for line in (*lines, *rest.splitlines()) if line.startswith('{"when"')]
    assert len(counted) == 2, complaints.read_text()
    for _ in range(600):
        if not training_driver.engines(str(head.folder)):
            break
        time.sleep(0.1)
    return counted, training_driver.engines(str(head.folder))


@pytest.fixture
def tree(tmp_path: Path, wheel_tree: Callable[[str, str], Path]) -> Callable[[str], Path]:
    def copied(release: str) -> Path:
        return shutil.copytree(wheel_tree("verl", release) / "verl", tmp_path / "verl")

    return copied


@pytest.mark.parametrize("release", ["0.4.0", "0.5.0"])
def test_unrepaired_servers_and_engines_stay_until_the_process_ends(
    head: ray_head.Head, tree: Callable[[str], Path], release: str
) -> None:
    (before, after), left = trained(head, tree(release), release, "return", patience=2)
    assert (before["engines"], after["engines"]) == (2, 2)
    assert after["actors"] == before["actors"] > 0
    assert after["scheduler"] == (release == "0.4.0")
    assert not left, "Ray ends them with the driver"


@pytest.mark.parametrize(
    ("release", "how", "number", "ended"),
    [
        ("0.4.0", "return", 0, "returned"),
        thorough("0.4.0", "wait", signal.SIGINT, "KeyboardInterrupt"),
        thorough("0.4.1", "return", 0, "returned"),
        thorough("0.5.0", "return", 0, "returned"),
        ("0.5.0", "raise", 0, "RuntimeError"),
        ("0.5.0", "wait", signal.SIGTERM, "SystemExit"),
    ],
)
def test_repaired_servers_end_with_training(
    head: ray_head.Head, tree: Callable[[str], Path], release: str, how: str, number: int, ended: str
) -> None:
    verl = tree(release)
    repaired(verl)
    (before, after), left = trained(head, verl, release, how, number)
    assert before["engines"] == 2
    assert after == {"when": ended, "actors": 0, "engines": 0, "scheduler": False}
    assert not left
