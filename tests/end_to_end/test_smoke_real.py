"""`verl-doctor smoke` on a real torch, Ray, vLLM and verl without a GPU: rungs 1 to 4 hold, faults are named, and nothing stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import rehearsal_environment
from support.ray import head

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=150)]

_LIMIT = 900
_WHOSE = "WHOSE_TEST"  # in the environment of all that a test starts
# The files left in the private /dev/shm follow this word.
_LEFT = "left in /dev/shm: "
_INSIDE = f'mount -t tmpfs tmpfs /dev/shm 2>/dev/null && seen=yes; "$@"; code=$?; [ "$seen" ] && echo "{_LEFT}$(ls -A /dev/shm)" >&2; exit $code'


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, shared_cache: Path) -> Path:
    """The sources of the environment are read once for all tests: 25 seconds of a processor each time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    return shared_cache


def smoke(
    home: Path, *arguments: str | Path, python: Path | None = None, **environ: str
) -> tuple[dict[str, Any], str]:
    """The result, and files left in /dev/shm, which is private where the system allows it."""
    command = [sys.executable, "-m", "verl_doctor.toolkit", "smoke", "--cpu", "--format", "json"]
    command += ["--python", str(python or rehearsal_environment.python()), *map(str, arguments)]
    alone = ["unshare", "--mount", "sh", "-c", _INSIDE, "sh"]
    if subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        alone = []
    variables = {**os.environ, **rehearsal_environment.variables(), "HOME": str(home), **environ}
    variables[_WHOSE] = str(home)
    if "RAY_TMPDIR" not in environ:
        del variables["RAY_TMPDIR"]
    done = subprocess.run(
        [*alone, *command],
        env=variables,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done.stderr.partition(_LEFT)[2].strip()


def marked(home: Path) -> list[str]:
    """The processes of climbs from this home that are no longer going on; others may climb on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"{_WHOSE}={home}".encode() not in words:
            continue
        folders = [
            word[len(b"VERL_DOCTOR_SMOKE=") :] for word in words if word.startswith(b"VERL_DOCTOR_SMOKE=")
        ]
        found += [path.parent.name for folder in folders if not os.path.exists(folder)]
    return found


def test_all_rungs_pass_and_leave_nothing(private_home: Path, cache: Path) -> None:
    report, left = smoke(private_home, "--up-to", "4")
    assert [(rung["number"], rung["status"], rung["cause"]) for rung in report["rungs"]] == [
        (number, "passed", "") for number in (1, 2, 3, 4)
    ]
    steps = {step["name"] for rung in report["rungs"] for step in rung["steps"]}
    assert {"import verl.workers.rollout.vllm_rollout", "a worker group of verl's", "generate"} <= steps
    assert report["verdict"] == "ok"
    assert left == ""
    deadline = time.monotonic() + 60  # what is killed takes a moment to go
    while (there := marked(private_home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert there == []
    assert not (private_home / ".ray").exists()
    assert not (private_home / ".cache" / "vllm").exists()
    assert not (cache / "vllm").exists()
    assert list((private_home / ".local" / "state" / "verl-doctor" / "smoke").iterdir()) == []


def test_path_too_long_for_sockets_stops_ray(private_home: Path) -> None:
    long = private_home / ("x" * 60)
    ray = head.environment() / "bin" / "python"  # that is all this rung needs until Ray has started
    report, left = smoke(private_home, "--rung", "3", python=ray, RAY_TMPDIR=str(long))
    [rung] = report["rungs"]
    assert (rung["status"], rung["code"]) == ("failed", "SMOKE106")
    assert "AF_UNIX path length cannot exceed 107 bytes" in rung["cause"]
    assert f"RAY_TMPDIR={long}" in rung["notes"][0]
    assert left == ""


@pytest.mark.thorough
def test_model_unknown_to_transformers_stops_vllm(private_home: Path) -> None:
    model = private_home / "model"
    made = [sys.executable, "-m", "verl_doctor.toolkit", "tiny", str(private_home / "tiny")]
    made += ["--python", str(rehearsal_environment.python())]
    subprocess.run(made, check=True, capture_output=True, timeout=_LIMIT)
    shutil.copytree(next((private_home / "tiny").glob("**/config.json")).parent, model)
    config = json.loads((model / "config.json").read_text())
    config.update(architectures=["Qwen9ForCausalLM"], model_type="qwen9")
    (model / "config.json").write_text(json.dumps(config))
    report, _ = smoke(private_home, "--rung", "4", "--model", model)
    [rung] = report["rungs"]
    assert (rung["status"], rung["code"]) == ("failed", "SMOKE108")
    assert "has model type `qwen9`" in rung["cause"]
    assert "LOAD102" in {finding["code"] for finding in report["check_says"]}
