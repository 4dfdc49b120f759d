"""Files that version 0.1.0 wrote are still read: facts, snapshots, journals, agreements and patch sets.

They lie in `files_of_0_1_0` as it wrote them for the environment of `verl-doctor demo`, with the paths, the user and the version
of Python taken out.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from support.running import Doctor

from verl_doctor.toolkit.commands.demo.demo import build

KEPT = Path(__file__).with_name("files_of_0_1_0")
SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder in which 0.1.0 worked, with an environment that it has not repaired yet."""
    build(tmp_path / "environment")
    (tmp_path / "run.sh").write_text(
        "python3 -m verl.trainer.main_ppo data.train_files=a.parquet trainer.n_gpus_per_node=1\n"
    )
    words = {
        "@HERE@": str(tmp_path),
        '"@UID@"': str(os.getuid()),
        '"@GID@"': str(os.getgid()),
        "@PYTHON@": f"{sys.version_info[0]}.{sys.version_info[1]}",
    }
    for file in filter(Path.is_file, KEPT.rglob("*")):
        text = file.read_text()
        for word, value in words.items():
            text = text.replace(word, value)
        target = tmp_path / file.relative_to(KEPT)
        target.parent.mkdir(exist_ok=True, parents=True)
        target.write_text(text)
    return tmp_path


@pytest.fixture
def repaired(folder: Path) -> Path:
    """The server's file, repaired and journalled by 0.1.0."""
    (server,) = folder.glob(f"environment/lib/python*/site-packages/{SERVER}")
    shutil.copyfile(folder / "journal" / "0001-applied" / "0.after", server)
    shutil.copytree(folder / "journal", folder / "environment" / ".verl-doctor")
    return server


@pytest.mark.parametrize("name", ["facts.json", "snapshot.json"])
def test_facts_and_snapshots_are_judged(here: Doctor, folder: Path, name: str) -> None:
    done = here("check", "--facts", folder / name, "--format", "json", cwd=folder)
    judged = {result["code"]: result["status"] for result in json.loads(done.stdout)["results"]}
    assert done.returncode == 1
    assert (judged["VLLM101"], judged["PKG101"]) == ("fail", "fail")
    assert "error" not in judged.values()


def test_snapshot_equals_itself(here: Doctor, folder: Path) -> None:
    done = here("compare", "snapshot.json", "snapshot.json", cwd=folder)
    assert (done.returncode, done.stdout.split()[0]) == (0, "EQUAL"), done.stdout


def test_repair_is_listed_and_undone(here: Doctor, folder: Path, repaired: Path) -> None:
    python = ("--python", folder / "environment")
    listed = here("undo", "--list", *python, cwd=folder)
    assert "0001  2026-11-22 16:42 UTC  applied      VLLM101" in listed.stdout
    undone = here("undo", *python, cwd=folder)
    assert undone.returncode == 0, undone.stderr
    assert repaired.read_bytes() == (folder / "journal" / "0001-applied" / "0.before").read_bytes()


def test_agreement_is_still_valid(here: Doctor, folder: Path, repaired: Path) -> None:
    guard = ("guard", "--python", folder / "environment")
    assert here(*guard, cwd=folder).returncode == 0
    repaired.write_bytes((folder / "journal" / "0001-applied" / "0.before").read_bytes())
    assert here(*guard, cwd=folder).returncode == 1


def test_patch_set_is_applied(here: Doctor, folder: Path) -> None:
    done = here("patches", "apply", "patches.json", "--python", folder / "environment", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "enable_log_requests" in done.stdout
