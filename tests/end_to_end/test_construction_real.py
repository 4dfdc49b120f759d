"""Construction of real jobs: verl 0.9.1 and vLLM build their objects, and raise what a GPU job would raise minutes later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import machine_facts, rehearsal_environment
from support.built_together import built

from verl_doctor.toolkit.collectors.construction.accepted import Accepted, Setting
from verl_doctor.toolkit.collectors.construction.accepted_collector import accepted
from verl_doctor.toolkit.collectors.construction.construction import BAD, Construction
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter, interpreter
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown, arguments_from
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.tiny.tiny import Tiny, make

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=120)]

ACTOR, MODEL, ROLLOUT = (f"actor_rollout_ref.{name}" for name in ("actor", "model", "rollout"))
REWARD = "reward.custom_reward_function.path"
AGENTS = f"{ROLLOUT}.agent.agent_loop_config_path"
SOUND: Mapping[str, str] = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": "2",
    "data.max_prompt_length": "256",
    "data.max_response_length": "64",
    f"{MODEL}.use_remove_padding": "False",
    f"+{MODEL}.override_config.attn_implementation": "sdpa",
    f"{ACTOR}.ppo_mini_batch_size": "2",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": "1",
    f"{ACTOR}.use_kl_loss": "True",
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.gpu_memory_utilization": "0.2",
    f"{ROLLOUT}.enforce_eager": "True",
    f"{ROLLOUT}.n": "2",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": "1",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": "1",
    f"{ROLLOUT}.tensor_model_parallel_size": "1",
    "trainer.logger": '["console"]',
    "trainer.n_gpus_per_node": "1",
    "trainer.test_freq": "-1",
    "trainer.val_before_train": "True",
    "trainer.total_training_steps": "1",
}


@dataclass(frozen=True)
class Case:
    """A job with these settings and files; the stage at which it fails, and part of the error.

    `own` is the configuration with which it starts in place of the usual one, `module` its program. Those that are `laid_out` for
    their GPUs are few: `test_world_real.py` tests that stage.
    """

    changed: Mapping[str, str]
    stage: str = ""
    text: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    own: str = ""
    module: str = "verl.trainer.main_ppo"
    laid_out: bool = False


SCORE = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return {}\n"
CASES: Mapping[str, Case] = {
    "sound": Case({}, laid_out=True),
    "sound file of its own": Case({}, files={"mine.yaml": "defaults: [ppo_trainer, _self_]\ndata: {seed: 5}\n"}, own="mine"),
    "critic": Case({"algorithm.adv_estimator": "gae", "critic.model.path": "{model}", "critic.model.tokenizer_path": "{model}", "critic.ppo_micro_batch_size_per_gpu": "1"}, "training engine", "FlashAttention2 has been toggled on"),
    "adapter": Case({f"{MODEL}.lora_rank": "8", f"{MODEL}.lora_alpha": "16"}, "engine's adapter", "get_unstacked_mapper"),
    "sixteen GPUs": Case({"trainer.n_gpus_per_node": "8", "trainer.nnodes": "2", f"{ROLLOUT}.n": "8", f"{ROLLOUT}.tensor_model_parallel_size": "2"}, laid_out=True),
    "sound reward": Case({REWARD: "mine.py"}, files={"mine.py": SCORE.format("0.5")}),
    "sound agent": Case({AGENTS: "agents.yaml", f"{ROLLOUT}.agent.default_agent_loop": "mine"}, files={"agents.yaml": "- name: mine\n  _target_: my_agents.Mine\n", "my_agents.py": "from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop\nclass Mine(SingleTurnAgentLoop): pass\n"}),
    "mode": Case({f"{ROLLOUT}.mode": "sync"}, "configuration classes", "Rollout mode 'sync' has been removed"),
    "context": Case({f"{ROLLOUT}.max_model_len": "32"}, "agent loops", "leaves no room to generate"),
    "critic's default": Case({"algorithm.adv_estimator": "gae"}, "validation", "Repo id must be in the form"),
    "engine": Case({f"{ROLLOUT}.name": "sglang"}, "rollout classes", "No module named 'sglang'"),
    "batched tokens": Case({f"{ROLLOUT}.max_num_batched_tokens": "16", f"{ROLLOUT}.enable_chunked_prefill": "False"}, "engine", "Field 'max_num_batched_tokens' is frozen"),
    "dynamic batches": Case({f"{ACTOR}.use_dynamic_bsz": "True", f"{ACTOR}.ppo_max_token_len_per_gpu": "32"}, "micro batches", "max_token_len must be greater"),
    "estimator": Case({"algorithm.adv_estimator": "grpoo"}, "algorithm", "Unknown advantage estimator"),
    "weight of the KL loss": Case({f"{ACTOR}.kl_loss_coef": "null"}, "algorithm", "NoneType"),
    "adapter's targets": Case({f"{MODEL}.lora_rank": "8", f"{MODEL}.target_modules": '["q_projj"]'}, "training engine", "not found in the base model"),
    "optimizer": Case({f"{ACTOR}.optim.optimizer": "AdamWW"}, "training engine", "'AdamWW' not found"),
    "reward": Case({REWARD: "mine.py"}, "reward", "'points'", {"mine.py": SCORE.format("extra_info['points']")}),
    "reward's answer": Case({REWARD: "mine.py"}, "reward", "which is not a number", {"mine.py": SCORE.format("None")}),
    "sampling in validation": Case({f"{ROLLOUT}.val_kwargs.top_p": "1.5"}, "agent loops in validation", "top_p must be in"),
    "resuming": Case({"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "/nowhere/global_step_5"}, "resuming", "there is no checkpoint"),
    "tracker": Case({"trainer.logger": '["console","wandbb"]'}, "trackers", "wandbb is not supported"),
}  # fmt: skip


def of_fine_tuning(targets: str, stage: str, text: str = "") -> Case:
    """A job whose workers Ray starts: its worker is built here, without Ray."""
    return Case(
        {
            "data.train_files": "{rows}",
            "data.train_batch_size": "2",
            "data.micro_batch_size_per_gpu": "1",
            "data.use_dynamic_bsz": "False",
            "model.path": "{model}",
            "model.use_remove_padding": "False",
            "+model.override_config.attn_implementation": "sdpa",
            "model.lora_rank": "4",
            "model.target_modules": targets,
            "engine.strategy": "fsdp2",
            "trainer.logger": '["console"]',
            "trainer.total_training_steps": "1",
        },
        stage,
        text,
        own="sft_trainer_engine",
        module="verl.trainer.sft_trainer_ray",
    )


JOBS: Mapping[str, Case] = {
    **CASES,
    "sound fine-tuning": of_fine_tuning("all-linear", ""),
    "fine-tuning": of_fine_tuning("[q_projj]", "training engine", "not found in the base model"),
}


@pytest.fixture(scope="module")
def real() -> Interpreter:
    found = interpreter.collect(Machine(), Target(rehearsal_environment.python(), "--python"))
    assert isinstance(found, Interpreter)
    return found


@pytest.fixture(scope="module")
def tiny(real: Interpreter, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    made = make(Machine(), real, tmp_path_factory.mktemp("tiny"), shape="qwen2", kind="text")
    assert isinstance(made, Tiny), made
    return made


def words(case: Case, tiny: Tiny) -> list[str]:
    files = {
        "data.train_files": str(tiny.train),
        "data.val_files": str(tiny.validation),
        f"{MODEL}.path": str(tiny.model),
    }
    usual = {**SOUND, **files} if case.module == Case.module else {}
    places = {"{model}": str(tiny.model), "{rows}": str(tiny.train.with_name("sft_train.parquet"))}
    return [f"{key}={places.get(value, value)}" for key, value in {**usual, **case.changed}.items()]


@pytest.fixture(scope="module")
def jobs(real: Interpreter, tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Construction]:
    top = tmp_path_factory.mktemp("jobs")
    requests: dict[str, dict[str, Any]] = {}
    site = next(Path(path) for path in real.site_packages if (Path(path) / "verl").is_dir())
    for name, case in JOBS.items():
        folder = top / name
        folder.mkdir()
        for file, text in case.files.items():
            (folder / file).write_text(text)
        requests[name] = {
            "folder": str(folder),
            "tree": str(site),
            "module": case.module,
            "config_folder": str(site / "verl" / "trainer" / "config"),
            "config_name": case.own or "ppo_trainer",
            "config_added": str(folder) if case.files and case.own else "",
            "overrides": words(case, tiny),
            "environ": {},
            "skip": [] if case.laid_out else ["world"],
            **({"until": case.stage} if case.stage else {}),
        }
    return built(rehearsal_environment.python(), requests, top)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.stage])
def test_valid_job_is_judged_without_failures(name: str, jobs: dict[str, Construction]) -> None:
    for stage in jobs[name].stages:
        assert stage.ended in ("ok", "not needed"), stage


@pytest.mark.parametrize("name", [name for name, case in JOBS.items() if case.stage])
def test_faulty_job_fails_with_the_real_error(name: str, jobs: dict[str, Construction]) -> None:
    case = JOBS[name]
    first = next(stage for stage in jobs[name].stages if stage.ended in BAD)
    assert first.stage == case.stage
    assert case.text in first.text


def test_fine_tuning_job_whose_workers_ray_starts_is_judged_without_failures(
    jobs: dict[str, Construction],
) -> None:
    stages = jobs["sound fine-tuning"].stages
    assert [stage for stage in stages if stage.ended in BAD] == []
    assert "training engine" in [stage.stage for stage in stages if stage.ended == "ok"]


def test_user_code_is_reported(jobs: dict[str, Construction]) -> None:
    assert [Path(file).name for file in jobs["sound reward"].own_code] == ["mine.py"]
    assert jobs["sound"].own_code == ()


def test_line_in_user_code_is_reported(jobs: dict[str, Construction]) -> None:
    (fault,) = jobs["reward"].bad("reward")
    frame = fault.frame("user")
    assert frame is not None
    assert (Path(frame.file).name, frame.line) == ("mine.py", 2)


def script_of(case: Case, tiny: Tiny, folder: Path) -> Path:
    quoted = " \\\n  ".join(f"'{word}'" for word in words(case, tiny))
    script = folder / "run.sh"
    script.write_text(f"python3 -m verl.trainer.main_ppo \\\n  {quoted}\n")
    return script


def test_nearest_accepted_settings_are_found(
    jobs: dict[str, Construction], tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within what a busy machine needs: the limits of users are shorter."""
    for limit in ("_LIMIT", "_OF_ONE"):
        monkeypatch.setattr(f"verl_doctor.toolkit.collectors.construction.accepted_collector.{limit}", 600.0)
    name = "sampling in validation"
    script = script_of(CASES[name], tiny, tmp_path)
    machine = Machine({**os.environ, **rehearsal_environment.variables()}, tmp_path)
    target = Target(rehearsal_environment.python(), "--python", files=(script,))
    look = Session(machine, target, Config(), machine_facts.known(), Selection()).look(
        {Construction: jobs[name]}
    )
    facts = arguments_from(accepted.needs, look.get)
    assert not isinstance(facts, Unknown), facts
    found = accepted.collect(**facts)
    assert isinstance(found, Accepted), found
    assert found.settings == (Setting(f"{ROLLOUT}.val_kwargs.top_p", left_out=True),)
    assert found.tried < 10


def checked(folder: Path, cache: Path, *more: str) -> dict[str, Any]:
    """Findings of `check --deep` about the construction of the script in this folder. `cache` has what others have read of the sources."""
    python = str(rehearsal_environment.python())
    command = [
        sys.executable,
        "-m",
        "verl_doctor.toolkit",
        "check",
        "run.sh",
        "--deep",
        "--python",
        python,
        "--format",
        "json",
        *more,
    ]
    environ = {**os.environ, **rehearsal_environment.variables(), "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=False, timeout=600
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_failing_reward_stops_the_job_at_the_line_of_the_script(
    tmp_path: Path, tiny: Tiny, shared_cache: Path
) -> None:
    """The whole path through the command line: the script, its words, and a child that imports everything."""
    case = CASES["reward"]
    source = case.files["mine.py"].replace(
        "extra_info[", "dict(extra_info)["
    )  # which no rule reports at once
    (tmp_path / "mine.py").write_text(source)
    script_of(case, tiny, tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    report = checked(tmp_path, shared_cache, "--select", "BUILD")
    found = {result["code"]: result for result in report["results"] if result["findings"]}
    assert sorted(found) == ["BUILD107", "BUILD120", "BUILD132"]
    (finding,) = found["BUILD107"]["findings"]
    assert (finding["phase"], finding["stops"]) == ("first batch", ["every job"])
    assert finding["location"]["line"] == 2 + words(case, tiny).index(f"{REWARD}=mine.py")
    assert "KeyError: 'points'" in finding["message"]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
