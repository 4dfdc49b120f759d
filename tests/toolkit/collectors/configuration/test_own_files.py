"""The user's own files that a job names: which of them are missing or unusable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.configuration.own_files import OwnFiles, own_files
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Setting
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

JOB = Launch((), command=Command("verl.trainer.main_ppo", (), "run.sh", 2))
UNREAD = Unknown("not looked at")
SAMPLER = ("+trainer.v1.sampler.custom_sampler.path=mine.py", "+trainer.use_v1=True")
MINE = "class Mine(Base):\n    pass\n\n\nclass Bare:\n    pass\n"


@pytest.mark.parametrize(
    ("words", "troubles"),
    [
        (["+data.custom_cls.path=mine.py", "+data.custom_cls.name=Mine"], []),
        (["+data.custom_cls.path=mine.py", "+data.custom_cls.name=Other"], ["no such name"]),
        (["+data.custom_cls.path=mine.py", "+data.custom_cls.name=Bare"], ["no data set"]),
        (["+data.custom_cls.path=broken.py", "+data.custom_cls.name=Mine"], ["no Python"]),
        (["+data.custom_cls.path=gone.py", "+data.custom_cls.name=Mine"], ["missing"]),
        ([*SAMPLER, "+trainer.v1.sampler.custom_sampler.name=Mine"], []),
        ([*SAMPLER, "+trainer.v1.sampler.custom_sampler.name=Other"], ["no such name"]),
        ([*SAMPLER, "+trainer.v1.sampler.custom_sampler.name=null"], []),
        ([SAMPLER[0], "+trainer.v1.sampler.custom_sampler.name=Other"], []),
        (["+custom_reward_function.path=broken.py"], ["no Python"]),
        (["+custom_reward_function.path=gone.py"], []),
        (["+actor_rollout_ref.rollout.multi_turn.tool_config_path=gone.yaml"], ["missing"]),
        (["+actor_rollout_ref.rollout.multi_turn.tool_config_path=null"], []),
        (["+actor_rollout_ref.rollout.multi_turn.tool_config_path=True"], ["no path"]),
        (["+actor_rollout_ref.rollout.multi_turn.tool_config_path=False"], []),
        (["+custom_reward_function.path=7"], ["no path"]),
        (["+trainer.resume_mode=resume_path", "+trainer.resume_from_path=/gone"], ["missing"]),
        (["+data.custom_cls.path=mine.py", "+data.custom_cls.name=null"], ["no name"]),
        (["+trainer.resume_mode=auto", "+trainer.resume_from_path=/gone"], []),
        (["+trainer.resume_mode=resume_path", "+trainer.resume_from_path=hdfs://x/gone"], []),
    ],
)
def test_problems_of_user_files_are_reported(tmp_path: Path, words: list[str], troubles: list[str]) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text("def f(:\n")
    interpreter = Interpreter(
        executable="/env/bin/python", version="3.10.0", implementation="CPython", cache_tag="cpython-310",
        environment="venv", prefix="/env", sys_path=(), site_packages=(),
        system="Linux", machine="x86_64", glibc="2.35", verl="", vllm="",
    )  # fmt: skip
    found = own_files.collect(
        configured(*words)[0], JOB, Machine(environ={}, cwd=tmp_path), interpreter, UNREAD
    )
    assert isinstance(found, OwnFiles)
    assert [file.trouble for file in found.files] == troubles


@pytest.mark.parametrize(
    ("code", "near"),
    [
        ("class Talks:\n    pass\n", ""),
        ("class Talks(Dataset):\n    pass\n", "Talks"),
        ("class Talks:\n    def __len__(self): ...\n    def __getitem__(self, place): ...\n", "Talks"),
        ("class TalkRows:\n    pass\nclass TalkRow(Dataset):\n    pass\n", "TalkRow"),
    ],
)
def test_no_class_is_proposed_that_would_be_rejected_too(tmp_path: Path, code: str, near: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    words = ["+data.custom_cls.path=mine.py", "+data.custom_cls.name=TalkRowss"]
    machine = Machine(environ={}, cwd=tmp_path)
    found = own_files.collect(configured(*words, tree={"data": {}})[0], JOB, machine, UNREAD, UNREAD)
    assert isinstance(found, OwnFiles)
    assert [file.near for file in found.files] == [near]


@pytest.mark.parametrize(
    ("code", "troubles"),
    [
        ("class Rows:\n    pass\n", ["no data set"]),
        ("class Rows:\n    def __len__(self): ...\n    def __getitem__(self, place): ...\n", []),
        ("class Rows:\n    pass\nRows = made(Rows)\n", []),
    ],
)
def test_fine_tuning_job_uses_any_class_with_rows(tmp_path: Path, code: str, troubles: list[str]) -> None:
    (tmp_path / "mine.py").write_text(code)
    words = ["+data.custom_cls.path=mine.py", "+data.custom_cls.name=Rows"]
    machine = Machine(environ={}, cwd=tmp_path)
    found = own_files.collect(configured(*words, tree={"data": {}})[0], JOB, machine, UNREAD, UNREAD)
    assert isinstance(found, OwnFiles)
    assert [file.trouble for file in found.files] == troubles


def test_fine_tuning_job_needs_a_checkpoint_to_resume_from(tmp_path: Path) -> None:
    tree = {"trainer": {"resume_mode": "auto", "resume_from_path": None}}
    for word, troubles in (
        ("trainer.resume_mode=resume_path", ["no path"]),
        ("trainer.resume_mode=auto", []),
    ):
        composed = configured(word, tree=tree)[0]
        found = own_files.collect(composed, JOB, Machine(environ={}, cwd=tmp_path), UNREAD, UNREAD)
        assert isinstance(found, OwnFiles)
        assert [file.trouble for file in found.files] == troubles


def test_variable_that_the_script_may_set_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / "reward.py").write_text("import os\nKEY = os.environ['JUDGE']\n")
    script = tmp_path / "run.sh"
    for text, environ, settings, troubles in (
        ("python3 x", {}, (), ["contents"]),
        ("python3 x", {"JUDGE": "1"}, (), []),
        ("python3 x", {}, (Setting("JUDGE", None, "run.sh", 1),), []),
        ("module load judge\npython3 x", {}, (), []),
    ):
        script.write_text(text)
        launch = Launch(((str(script), "shell script"),), settings, command=JOB.command)
        found = own_files.collect(
            configured("+custom_reward_function.path=reward.py")[0],
            launch,
            Machine(environ=environ, cwd=tmp_path),
            UNREAD,
            UNREAD,
        )
        assert isinstance(found, OwnFiles)
        assert [file.trouble for file in found.files] == troubles


@pytest.mark.parametrize(
    ("words", "saved", "problem"),
    [
        (["trainer.n_gpus_per_node=8", "trainer.nnodes=2"], 16, ""),
        (
            ["trainer.n_gpus_per_node=8", "trainer.nnodes=2"],
            8,
            "has shards for 8 processes, but the job has 16",
        ),
        (["trainer.n_gpus_per_node=8", "trainer.nnodes=${oc.env:N}"], 4, ""),
        (
            ["trainer.n_gpus_per_node=8", "actor_rollout_ref.actor.checkpoint.load_contents=[optimizer]"],
            4,
            "",
        ),
        (["trainer.n_gpus_per_node=8", "+trainer.v1.trainer_mode=separate_async"], 4, ""),
        (["trainer.n_gpus_per_node=8"], 0, ""),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "resume_path"])
def test_checkpoint_of_another_number_of_processes(
    tmp_path: Path, mode: str, words: list[str], saved: int, problem: str
) -> None:
    folder = tmp_path / "checkpoints" / "global_step_5"
    (folder / "actor").mkdir(parents=True)
    for rank in range(saved):
        for part in ("model", "optim", "extra_state"):
            (folder / "actor" / f"{part}_world_size_{saved}_rank_{rank}.pt").touch()
    (folder.parent / "latest_checkpointed_iteration.txt").write_text("5")
    tree = {
        "trainer": {
            "resume_mode": mode,
            "resume_from_path": str(folder) if mode == "resume_path" else None,
            "default_local_dir": str(folder.parent),
            "nnodes": 1,
            "n_gpus_per_node": 8,
        },
        "actor_rollout_ref": {
            "actor": {
                "checkpoint": {
                    "save_contents": ["model", "optimizer", "extra"],
                    "load_contents": "${.save_contents}",
                }
            }
        },
    }
    composed = replace(configured(*words, tree=tree)[0], program="/env/verl/trainer/main_ppo.py")
    tracker = folder.parent / "latest_checkpointed_iteration.txt"
    for removed, known in (
        ("/elsewhere", True),
        (tmp_path, False),
        (folder, False),
        (tracker, mode != "auto"),
    ):
        job = replace(JOB, removed=(str(removed),))
        found = own_files.collect(composed, job, Machine(environ={}, cwd=tmp_path), UNREAD, UNREAD)
        assert isinstance(found, OwnFiles)
        assert [file.error for file in found.files] == ([problem] if problem and known else [])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"standalone": None, "nproc_per_node": "2"}, ""),
        ({"nnodes": "2", "nproc_per_node": "4"}, "has shards for 2 processes, but the job has 8"),
        ({"standalone": None, "nproc_per_node": "gpu"}, ""),
        ({"standalone": None}, ""),
    ],
)
def test_checkpoint_of_a_fine_tuning_job(
    tmp_path: Path, options: dict[str, str | None], problem: str
) -> None:
    (tmp_path / "model_world_size_2_rank_0.pt").touch()
    tree = {
        "trainer": {"resume_mode": "resume_path", "resume_from_path": str(tmp_path)},
        "checkpoint": {"load_contents": ["model"]},
    }
    composed = replace(configured(tree=tree)[0], program="/env/verl/trainer/sft_trainer.py")
    job = Launch((), command=Command("verl.trainer.sft_trainer", (), "run.sh", 2))
    processes = JobProcesses(needs_ranks=True, launcher="torchrun", options=options)
    found = own_files.collect(composed, job, Machine(environ={}, cwd=tmp_path), UNREAD, processes)
    assert isinstance(found, OwnFiles)
    assert [file.error for file in found.files] == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("strategy", "problem"),
    [
        ("fsdp2", "has no shards of model, optimizer, which actor_rollout_ref.actor.checkpoint"),
        ("megatron", ""),
    ],
)
def test_checkpoint_whose_shards_were_deleted(tmp_path: Path, strategy: str, problem: str) -> None:
    folder = tmp_path / "global_step_2" / "actor"
    (folder / "huggingface").mkdir(parents=True)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("2")
    tree = {
        "trainer": {
            "resume_mode": "auto",
            "default_local_dir": str(tmp_path),
            "n_gpus_per_node": 1,
            "nnodes": 1,
        },
        "actor_rollout_ref": {
            "actor": {"strategy": strategy, "checkpoint": {"load_contents": ["model", "optimizer"]}}
        },
    }
    composed = replace(configured(tree=tree)[0], program="/env/verl/trainer/main_ppo.py")
    found = own_files.collect(composed, JOB, Machine(environ={}, cwd=tmp_path), UNREAD, UNREAD)
    assert isinstance(found, OwnFiles)
    assert [(file.error or "").startswith(problem) for file in found.files] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("saved", "loaded", "problem"),
    [
        (("model", "optim", "extra_state"), ["model", "optimizer", "extra"], ""),
        (("model",), ["model"], ""),
        (("model",), ["model", "hf_model"], ""),
        (("model", "optim"), ["model", "optimizer", "extra"], "has no shards of extra, which checkpoint"),
        (("model",), ["model", "optimizer", "extra"], "has no shards of optimizer, extra, which"),
        ((), ["model", "optimizer", "extra"], ""),
    ],
)
def test_checkpoint_without_what_the_job_loads(
    tmp_path: Path, saved: tuple[str, ...], loaded: list[str], problem: str
) -> None:
    for part in saved:
        (tmp_path / f"{part}_world_size_2_rank_0.pt").touch()
    tree = {
        "trainer": {"resume_mode": "resume_path", "resume_from_path": str(tmp_path)},
        "checkpoint": {"load_contents": loaded},
    }
    composed = replace(configured(tree=tree)[0], program="/env/verl/trainer/sft_trainer.py")
    job = Launch((), command=Command("verl.trainer.sft_trainer", (), "run.sh", 2))
    processes = JobProcesses(
        needs_ranks=True, launcher="torchrun", options={"standalone": None, "nproc_per_node": "2"}
    )
    found = own_files.collect(composed, job, Machine(environ={}, cwd=tmp_path), UNREAD, processes)
    assert isinstance(found, OwnFiles)
    assert [file.error.startswith(problem) for file in found.files] == ([True] if problem else [])
