"""`fix --output-env DIR` as a user types it: shown, written, sourced, taken back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from crash.harness import tree
from support.running import inside
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text

NAME = "VLLM_USE_V1"
SELECTED = ("--select", "ENV101")


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """A vLLM that does not read `VLLM_USE_V1` any more."""
    folder = tmp_path / "site/vllm"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "envs.py").write_text("import os\nA = os.getenv('VLLM_PORT')\n")
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A private environment whose journal the tests may write."""
    bin_folder = tmp_path / "venv/bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "python").symlink_to(sys.executable)
    (bin_folder.parent / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    return bin_folder / "python"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    return folder


@pytest.mark.slow
def test_environment_files_complete_the_repair_loop(
    python: Path, vllm: Path, job: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(NAME, "1")

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return inside(*arguments, cwd=job, monkeypatch=monkeypatch, capfd=capfd)

    def fix(*arguments: str) -> dict:
        done = run("fix", "--python", python, "--vllm", vllm, *SELECTED, *arguments, "--format", "json")
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        schema = schema_text("report")
        validate(document, schema)
        return document

    before = tree(job)
    planned = fix("--output-env", "env")
    assert planned["repairs"][0]["outcome"] == "planned"
    assert f"+unset {NAME}\n" in planned["environment"]["diff"]
    assert fix()["repairs"][0]["reason"].startswith(
        "it needs a variable in the job's environment: --output-env"
    )
    assert tree(job) == before
    done = fix("--apply", "--output-env", "env")
    (repair,) = done["repairs"]
    assert (repair["outcome"], repair["changes"][0]["name"]) == ("repaired", NAME)
    shell = done["environment"]["shell"]
    assert shell == str(job / "env/verl-doctor.env.sh")
    script = f'export {NAME}=1; . "$1"; env'
    seen = subprocess.run(["bash", "-euc", script, "bash", shell], capture_output=True, text=True, check=True)
    assert f"{NAME}=" not in seen.stdout
    undone = run("undo", repair["transaction"])
    assert undone.returncode == 0, undone.stderr
    assert tree(job) == before


@pytest.mark.slow
def test_next_steps_are_shown(
    python: Path, vllm: Path, job: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(NAME, "1")

    def fix(*arguments: str) -> str:
        words = ("fix", "--python", python, "--vllm", vllm, *SELECTED, *arguments)
        return inside(*words, cwd=job, monkeypatch=monkeypatch, capfd=capfd).stdout

    assert "\n  verl-doctor fix --apply --output-env env" in fix()
    assert "NOTHING DONE" in fix("--apply")
    assert f"\n  verl-doctor fix --apply --output-env {job}/env" in fix("--output-env", "env")
    output = fix("--apply", "--output-env", "env")
    assert "REPAIRED  1 of 1" in output
    assert f"\n  source {job}/env/verl-doctor.env.sh\n" in output
    assert "ray job submit" not in output, "a runtime_env cannot remove a variable"


@pytest.mark.parametrize("folder", ["", "file", "mine", "/proc/x"])
def test_unusable_folder_is_one_sentence(
    python: Path,
    vllm: Path,
    job: Path,
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (job / "file").write_text("")
    (job / "mine").mkdir()
    (job / "mine/verl-doctor.env.sh").write_text("export MINE=1\n")
    words = ("fix", "--python", python, "--vllm", vllm, *SELECTED, "--output-env", folder)
    done = inside(*words, cwd=job, monkeypatch=monkeypatch, capfd=capfd)
    assert done.returncode == 2
    assert done.stdout == ""
    assert (job / "mine/verl-doctor.env.sh").read_text() == "export MINE=1\n"
