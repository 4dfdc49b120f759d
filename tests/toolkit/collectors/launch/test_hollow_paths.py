"""Paths that begin with a variable that is never set."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.launch.hollow_paths import HollowPaths, hollow_paths
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

JOB = "python3 -m verl.trainer.main_ppo"
KEY = "data.train_files"


def collected(folder: Path, script: str, **environ: str) -> HollowPaths:
    path = folder / "run.sh"
    path.write_text(script)
    target = Target(Path("/env/bin/python"), "--python", files=(path,))
    machine = Machine(environ={"HOME": "/home/u", **environ}, cwd=folder)
    read = launch.collect(target, machine)
    assert isinstance(read, Launch)
    found = hollow_paths.collect(read, machine)
    assert isinstance(found, HollowPaths)
    return found


def hollow(folder: Path, script: str, **environ: str) -> list[tuple[str, str, tuple[str, ...]]]:
    found = collected(folder, script, **environ)
    return [(path.key, path.path, path.names) for path in found.paths]


@pytest.mark.parametrize(
    ("before", "value", "lacks"),
    [
        ("DATA=/d", "${oc.env:DATA}/train.parquet", True),
        ("export DATA=/d", "${oc.env:DATA}/train.parquet", False),
        ("DATA=/d", "${oc.env:DATA,/e}/train.parquet", False),
        ("DATA=/d", "${oc.env:SLURM_JOB_ID}", False),
        ("source setup.sh", "${oc.env:DATA}/train.parquet", False),
        ("[ -f x ] && export DATA=/d", "${oc.env:DATA}/train.parquet", False),
    ],
)
def test_variable_that_only_the_shell_has_is_lacking(
    tmp_path: Path, before: str, value: str, lacks: bool
) -> None:
    found = collected(tmp_path, f"{before}\n{JOB} {KEY}='{value}'")
    assert bool(found.lacking) is lacks


@pytest.mark.parametrize(
    ("script", "path", "names"),
    [
        (f"{JOB} {KEY}=$DATA/no/train.parquet", "/no/train.parquet", ("DATA",)),
        (f"{JOB} '++trainer.x=1' {KEY}=\"${{DATA}}/no/train.parquet\"", "/no/train.parquet", ("DATA",)),
        (f"TRAIN=$DATA/no/train.parquet\n{JOB} {KEY}=$TRAIN", "/no/train.parquet", ("TRAIN",)),
        (f"{JOB} {KEY}=[$A/no/1.parquet,$B/no/2.parquet]", "/no/1.parquet", ("A", "B")),
    ],
)
def test_path_with_an_empty_variable_at_its_start_is_reported(
    tmp_path: Path, script: str, path: str, names: tuple[str, ...]
) -> None:
    assert hollow(tmp_path, script) == [(KEY, path, names)]


@pytest.mark.parametrize(
    "script",
    [
        f"DATA=/data\n{JOB} {KEY}=$DATA/no/train.parquet",
        f"{JOB} {KEY}=${{DATA:-/data}}/train.parquet",
        f"{JOB} {KEY}=$SLURM_TMPDIR/no/train.parquet",  # a scheduler sets it
        f"{JOB} {KEY}=$DATA/",  # the root is there
        f"{JOB} trainer.default_local_dir=$DATA/ckpt",  # is made
        f"{JOB} {KEY}=data/$DATA/train.parquet",
        f"source settings.sh\n{JOB} {KEY}=$DATA/no/train.parquet",  # cannot be followed
        f"read DATA\n{JOB} {KEY}=$DATA/no/train.parquet",
        f"if [ -f x ]; then DATA=/data; fi\n{JOB} {KEY}=$DATA/no/train.parquet",
    ],
)
def test_variable_that_may_have_a_value_is_not_reported(tmp_path: Path, script: str) -> None:
    assert hollow(tmp_path, script) == []


@pytest.mark.parametrize(
    "name",
    [
        "PET_NNODES", "PET_MASTER_ADDR", "SKYPILOT_NUM_NODES", "MA_NUM_HOSTS", "SENSECORE_PYTORCH_NNODES", "RUNAI_NUM_OF_GPUS", "PADDLE_TRAINERS_NUM",
        "FLUX_JOB_NNODES", "VC_WORKER_NUM", "VK_TASK_INDEX", "NSLOTS", "NHOSTS", "PE_HOSTFILE", "SGE_TASK_ID", "LSB_DJOB_NUMPROC", "PBS_O_WORKDIR",
        "AIMASTER_ADDR", "PAI_WORKER_COUNT", "KUBEFLOW_RUN", "CI_PROJECT_DIR", "GITHUB_WORKSPACE", "COBALT_JOBSIZE", "OAR_NODEFILE", "_CONDOR_SCRATCH_DIR",
        "AMLT_OUTPUT_DIR", "AIP_MODEL_DIR", "DET_NUM_SLOTS", "TORCHELASTIC_RUN_ID", "AZUREML_NODE_COUNT", "SM_NUM_GPUS", "LIGHTNING_ARTIFACTS_DIR", "PJM_NODE",
    ],
)  # fmt: skip
def test_variable_of_a_platform_is_not_reported(tmp_path: Path, name: str) -> None:
    assert hollow(tmp_path, f"{JOB} {KEY}=${name}/no/train.parquet") == []


@pytest.mark.parametrize(
    "name",
    [
        "DATA_DIR",
        "BATCH_SIZE",
        "MODEL",
        "SYSTEM_PROMPT",
        "AGENT_FILES",
        "MOMENTUM",
        "PRETRAINED",
        "TRAIN_FILE",
        "N",
        "EBS",
    ],
)
def test_variable_of_the_user_is_reported(tmp_path: Path, name: str) -> None:
    assert hollow(tmp_path, f"{JOB} {KEY}=${name}/no/train.parquet")


def test_variable_of_the_shell_has_a_value(tmp_path: Path) -> None:
    assert hollow(tmp_path, f"{JOB} {KEY}=$DATA/no/train.parquet", DATA="/data") == []
