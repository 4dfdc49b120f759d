"""A plan that needs a package installer: it runs once, what is certain is shown before it ends, and its result is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.environments import install
from support.miniatures.variant_verl import variant_verl
from support.running import doctor

pytestmark = pytest.mark.slow

PIP = """
import json, os, sys, time
with open({counted!r}, "a") as file:
    file.write("run\\n")
time.sleep({seconds})
print(json.dumps({{"install": [{{"metadata": {{"name": "ray", "version": "2.49.0"}}}}]}}))
"""
SCRIPT = """\
{python} -m verl.trainer.main_ppo \\
  actor_rollout_ref.rollout.nam=vllm algorithm.adv_estimatr=grpo \\
  trainer.n_gpus_per_node=1
"""


class Job:
    """A script whose environment lacks a package and has a pip that counts its runs."""

    def __init__(self, top: Path, seconds: float) -> None:
        self.top = top
        env = top / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
        site = next(env.glob("lib/python*/site-packages"))
        shutil.copytree(variant_verl(top / "tree"), site / "verl", dirs_exist_ok=True)
        install(site, "verl", "0.9.1", requires=["ray"])
        pip = PIP.format(counted=str(top / "counted"), seconds=seconds)
        install(site, "pip", "25.0", files={"pip/__init__.py": b"", "pip/__main__.py": pip.encode()})
        (top / "run.sh").write_text(SCRIPT.format(python=env / "bin" / "python"))

    @property
    def runs(self) -> int:
        file = self.top / "counted"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def fix(self, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
        (self.top / "home").mkdir(exist_ok=True)
        return doctor(
            "fix", *options, "--select", "PKG101,CFG101,CFG107", "run.sh",
            cwd=self.top, HOME=str(self.top / "home"), XDG_CACHE_HOME=str(self.top / "home/cache"), VIRTUAL_ENV="", **environ,
        )  # fmt: skip


def test_installer_runs_once_for_a_plan_and_not_again_for_the_same(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    first = job.fix()
    assert "added: ray 2.49.0" in first.stdout
    assert first.stdout.count("planned  CFG101") >= 2  # each edit is judged in memory
    assert job.runs == 1
    assert job.fix().stdout == first.stdout
    assert job.runs == 1
    (tmp_path / "home" / "constraints.txt").write_text("ray<3")
    job.fix(PIP_CONSTRAINT=str(tmp_path / "home" / "constraints.txt"))
    assert job.runs == 2


def test_showing_a_kept_result_does_not_make_it_younger(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    job.fix()
    (kept,) = (tmp_path / "home" / "cache").rglob("Resolution/*.json")
    half_an_hour_ago = time.time() - 1800
    os.utime(kept, (half_an_hour_ago, half_an_hour_ago))
    job.fix()
    assert (job.runs, kept.stat().st_mtime) == (1, pytest.approx(half_an_hour_ago))
    os.utime(kept, (half_an_hour_ago - 1800, half_an_hour_ago - 1800))
    job.fix()
    assert job.runs == 2


def test_findings_are_shown_before_the_installer_has_ended(tmp_path: Path) -> None:
    done = Job(tmp_path, 6).fix()
    lines = done.stderr.splitlines()
    waiting = next(number for number, line in enumerate(lines) if line.startswith("looking for packages"))
    assert "PKG101" in lines[waiting]
    assert "at most 120 s" in lines[waiting]
    assert any(line.startswith("WILL FAIL") for line in lines[:waiting])
    assert any(line.startswith("  CFG101") for line in lines[:waiting])
    assert "added: ray 2.49.0" in done.stdout


def test_plan_names_how_to_wait_longer_for_it(tmp_path: Path) -> None:
    job = Job(tmp_path, 30)
    done = job.fix("--budget", "5s")
    assert "at most 5 s" in done.stderr
    assert "verl-doctor fix --budget 5m waits longer for the plan" in " ".join(done.stdout.split())


def test_safe_repairs_do_without_the_installer(tmp_path: Path) -> None:
    job = Job(tmp_path, 0)
    done = job.fix("--apply")
    assert "it installs packages" in done.stdout, done.stdout
    assert job.runs == 0
