"""Errors raised for a configuration by verl's validation, and by vLLM's checks of the values that verl passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.configuration.demands import demands
from verl_doctor.toolkit.collectors.configuration.validation.reader import read_validation
from verl_doctor.toolkit.collectors.configuration.validation.validation import Validation
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.facts import Absent

ROLLOUT = "actor_rollout_ref.rollout"
TREE = {
    "data": {"train_batch_size": 12},
    "actor_rollout_ref": {
        "actor": {"ppo_mini_batch_size": 4, "micro_batch_size": 2},
        "rollout": {
            "name": "vllm", "n": 1, "max_num_seqs": 256, "max_num_batched_tokens": 8192, "max_model_len": None,
            "enable_chunked_prefill": True, "engine_kwargs": {"vllm": {}},
        },
    },
}  # fmt: skip
PROGRAM = """\
from verl.utils.config import validate_config

def main(config):
    validate_config(config=config)
"""
CONFIG = """\
def validate_config(config):
    actor = config.actor_rollout_ref.actor
    assert actor.ppo_mini_batch_size % actor.micro_batch_size == 0
    if config.data.train_batch_size % actor.ppo_mini_batch_size != 0:
        raise ValueError(f"{config.data.train_batch_size} is no multiple of {actor.ppo_mini_batch_size}")
"""
SERVER = """\
class Server:
    async def launch(self):
        args = {
            "gpu_memory_utilization": self.config.gpu_memory_utilization,
            "max_num_seqs": self.config.max_num_seqs,
            "max_num_batched_tokens": self.config.max_num_batched_tokens,
            "max_model_len": self.config.max_model_len,
        }

class vLLMHttpServer:
    async def launch_server(self, address=None):
        engine_kwargs = self.config.get("engine_kwargs", {}).get("vllm", {}) or {}
"""
NEW_SCHEDULER = """\
class SchedulerConfig:
    max_num_batched_tokens: int = Field(default=2048, ge=1)
    max_num_seqs: int = Field(default=128, ge=1)
    enable_chunked_prefill: bool = True

    def verify_max_model_len(self, max_model_len):
        if self.max_num_batched_tokens < max_model_len and not self.enable_chunked_prefill:
            raise ValueError("smaller than max_model_len")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(f"{self.max_num_batched_tokens} must be at least {self.max_num_seqs}")
        return self
"""
OLD_SCHEDULER = """\
class SchedulerConfig:
    max_num_batched_tokens: SkipValidation[int] = None
    max_num_seqs: SkipValidation[int] = None
    max_model_len: SkipValidation[int] = None
    chunked_prefill_enabled: SkipValidation[bool] = None

    @model_validator(mode="after")
    def _verify_args(self):
        if self.max_num_batched_tokens < self.max_model_len and not self.chunked_prefill_enabled:
            raise ValueError("smaller than max_model_len")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(f"{self.max_num_batched_tokens} must be at least {self.max_num_seqs}")
        return self
"""


def trees(folder: Path, scheduler: str) -> tuple[VerlTrees, VllmTree]:
    files = {
        "verl/__init__.py": "",
        "verl/trainer/__init__.py": "",
        "verl/trainer/main_ppo.py": PROGRAM,
        "verl/utils/__init__.py": "",
        "verl/utils/config.py": CONFIG,
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py": SERVER,
        "vllm/__init__.py": "",
        "vllm/config/__init__.py": "",
        "vllm/config/scheduler.py": scheduler,
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    verl = Tree(str(folder / "verl"), "verl", "0.9.1", "site-packages")
    return VerlTrees(verl, "it is the only one"), VllmTree(
        Tree(str(folder / "vllm"), "vllm", "0.31.0", "site-packages")
    )


def raised(folder: Path, *words: str, scheduler: str = NEW_SCHEDULER) -> Validation:
    verl, vllm = trees(folder, scheduler)
    program = str(folder / "verl/trainer/main_ppo.py")
    there = with_overrides(
        Configuration(program, "/c", "ppo_trainer", before=TREE), [Word(word, "run.sh", 1) for word in words]
    )
    return read_validation(there, verl, vllm, Absent("not looked at"), Absent("not looked at"))


@pytest.mark.parametrize("scheduler", [NEW_SCHEDULER, OLD_SCHEDULER])
def test_scheduler_compares_the_values_that_verl_passes(tmp_path: Path, scheduler: str) -> None:
    (found,) = raised(
        tmp_path, f"{ROLLOUT}.max_num_batched_tokens=16", f"{ROLLOUT}.max_model_len=512", scheduler=scheduler
    ).raised
    assert (found.text, found.phase, found.library) == ("16 must be at least 256", "engine", "vllm")
    assert (found.nearest_key, found.nearest) == (f"{ROLLOUT}.max_num_batched_tokens", "256")


def test_direct_engine_argument_overrides_the_setting(tmp_path: Path) -> None:
    word = f"+{ROLLOUT}.engine_kwargs.vllm.max_num_seqs=16384"
    (found,) = raised(tmp_path, word).raised
    assert found.text == "8192 must be at least 16384"
    assert not raised(tmp_path, f"{ROLLOUT}.max_num_seqs=16384", word.replace("16384", "64")).raised


@pytest.mark.parametrize(
    "word", ["max_num_batched_tokens=256", "max_num_seqs=8192", "enable_chunked_prefill=False"]
)
def test_scheduler_accepts_other_values(tmp_path: Path, word: str) -> None:
    assert not raised(tmp_path, f"{ROLLOUT}.{word}").raised


def test_nearest_value_satisfies_all_checks(tmp_path: Path) -> None:
    """Six is the nearest mini batch that divides the batch of 12, but no multiple of the micro batches of four."""
    actor = "actor_rollout_ref.actor"
    (found,) = raised(tmp_path, f"{actor}.ppo_mini_batch_size=8", f"{actor}.micro_batch_size=4").raised
    assert found.text == "12 is no multiple of 8"
    assert (found.nearest_key, found.nearest) == (f"{actor}.ppo_mini_batch_size", "4")


def test_change_that_keeps_the_result_is_suggested_first(tmp_path: Path) -> None:
    actor = "actor_rollout_ref.actor"
    (found,) = raised(tmp_path, f"{actor}.ppo_mini_batch_size=4", f"{actor}.micro_batch_size=3").raised
    assert (found.nearest_key, found.nearest) == (f"{actor}.micro_batch_size", "2")
    assert f"{actor}.ppo_mini_batch_size" in {key for key, _ in found.others}


MANAGER = """\
@register("dapo")
class DAPORewardManager(RewardManagerBase):
    def __init__(self, config, tokenizer):
        buffer = config.reward.get("reward_kwargs", {}).get("overlong_buffer_cfg", None)
        if buffer is not None and buffer.enable:
            assert config.reward.reward_kwargs.max_resp_len >= buffer.len, "max_resp_len must be larger"
"""
WORKER = """\
class AgentLoopWorker:
    def __init__(self, config):
        self.rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        self.tools = self.rollout.multi_turn.tool_config_path
"""
CLASSES = """\
class RolloutConfig:
    def __post_init__(self):
        if unclear():
            object.__setattr__(self, "mode", "async")
"""


def place(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    for above in list(file.relative_to(folder).parents)[:-1]:
        (folder / above / "__init__.py").touch()
    file.write_text(text)


@pytest.mark.parametrize(("length", "problem"), [("4096", "max_resp_len must be larger"), ("8", "")])
def test_configured_reward_manager_is_checked(tmp_path: Path, length: str, problem: str) -> None:
    place(tmp_path, "verl/experimental/reward_loop/reward_manager/dapo.py", MANAGER)
    keys = "+reward.reward_kwargs"
    words = (
        "+reward.reward_manager.name=dapo",
        f"{keys}.overlong_buffer_cfg.enable=True",
        f"{keys}.overlong_buffer_cfg.len={length}",
        f"{keys}.max_resp_len=16",
    )
    found = raised(tmp_path, *words).raised
    assert [(problem.text, problem.phase) for problem in found] == (
        [(problem, "first batch")] if problem else []
    )


@pytest.mark.parametrize(("word", "refused"), [("multi_turn=True", True), ("multi_turn.enable=True", False)])
def test_scalar_in_place_of_a_section_that_workers_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, refused: bool
) -> None:
    place(tmp_path, "verl/experimental/agent_loop/agent_loop.py", WORKER)
    place(tmp_path, "verl/workers/config.py", CLASSES)
    section = {"_target_": "verl.workers.config.RolloutConfig", "mode": "async", "multi_turn": {"enable": False, "tool_config_path": None}}  # fmt: skip
    monkeypatch.setitem(TREE["actor_rollout_ref"], "rollout", section)
    found = raised(tmp_path, f"{ROLLOUT}.{word}").raised
    assert [problem.text for problem in found] == [
        "'bool' object has no attribute 'tool_config_path'"
    ] * refused


def test_old_workers_still_divide_the_global_micro_batch(tmp_path: Path) -> None:
    verl, _ = trees(tmp_path, NEW_SCHEDULER)
    workers = tmp_path / "verl/workers"
    (workers / "engine_workers.py").write_text(
        "        assert self.config.actor.ppo_micro_batch_size_per_gpu is not None\n"
    )
    assert demands.collect(verl).place("micro batch per GPU")
    (workers / "fsdp_workers.py").write_text("")
    assert not demands.collect(verl).place("micro batch per GPU")


FETCHING = """\
class RayPPOTrainer:
    def _next_train_batch(self, num_prompts=None):
        train_batch_size = self.config.data.train_batch_size
        if num_prompts is None:
            num_prompts = train_batch_size
        gen_batch_size = self.config.data.get("gen_batch_size", None) or train_batch_size
        if num_prompts % gen_batch_size != 0:
            raise ValueError(f"{num_prompts} is no multiple of {gen_batch_size}")
"""
BUFFER = """\
class ReplayBuffer:
    def __init__(self, max_off_policy_threshold, max_off_policy_strategy, refill_fn=None, filter_groups_metric=None):
        assert max_off_policy_strategy in ["drop", "wait"], f"{max_off_policy_strategy} is neither"
        if filter_groups_metric is not None and refill_fn is None:
            raise ValueError("no refill_fn")
"""


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (["+data.gen_batch_size=5"], ["12 is no multiple of 5"]),
        (["+data.gen_batch_size=6"], []),
        (["+data.gen_batch_size=5", "+algorithm.filter_groups.enable=True"], []),
        (["+data.gen_batch_size=5", "+trainer.v1.sampler.sync_refill_failed_groups=True"], []),
        (["+trainer.v1.sampler.max_off_policy_strategy=discard"], ["discard is neither"]),
        (["+trainer.v1.sampler.max_off_policy_strategy=wait"], []),
    ],
)
def test_settings_of_batches_are_compared_with_each_other(
    tmp_path: Path, words: list[str], texts: list[str]
) -> None:
    place(tmp_path, "verl/trainer/ppo/ray_trainer.py", FETCHING)
    place(tmp_path, "verl/trainer/ppo/v1/replay_buffer.py", BUFFER)
    assert [found.text for found in raised(tmp_path, *words).raised] == texts


ALGORITHMS = """\
class AdaptiveKLController:
    def __init__(self, init_kl_coef, target_kl, horizon):
        self.target, self.horizon = target_kl, horizon

    def update(self, current_kl, n_steps):
        target = self.target
        error = np.clip(current_kl / target - 1, -0.2, 0.2)
        self.value *= 1 + error * n_steps / self.horizon
"""
CORRECTION = """\
def compute_rollout_correction_and_add_to_batch(batch, config):
    threshold = config.get("rollout_is_threshold", 2.0)
    corrected(batch.batch["old_log_probs"], threshold=threshold)

def corrected(old_log_prob, threshold):
    if not old_log_prob.any():
        raise ValueError("nothing to correct")
    try:
        upper = float(threshold)
    except ValueError as exc:
        raise ValueError(f"Invalid threshold '{threshold}'.") from exc
"""
UPDATES = """\
class RayPPOTrainer:
    def _compute_old_log_prob(self, batch):
        if self.config.algorithm.rollout_correction.bypass_mode:
            data = fetch(batch.keys)
            data["old_log_probs"] = data.pop("rollout_log_probs")
            return batch

    def _update_actor(self, batch):
        batch.extra_info.update({"seed": self.config.actor_rollout_ref.actor.data_loader_seed})
"""
TRAINING = """\
class TrainingWorker:
    @register(dispatch_mode=1)
    def train_mini_batch(self, data):
        seed = tu.pop(data, key="seed", default=42)
        loader = tu.make_iterator(data, seed=seed + self.engine.get_data_parallel_rank())
"""
ADAPTIVE = [
    "+algorithm.use_kl_in_reward=True",
    "+algorithm.kl_ctrl.type=adaptive",
    "+algorithm.kl_ctrl.horizon=10",
]
LOG_PROBS = "+actor_rollout_ref.rollout.calculate_log_probs"
BYPASS = "+algorithm.rollout_correction.bypass_mode"
BOUND = "+algorithm.rollout_correction.rollout_is_threshold"
SEED = "+actor_rollout_ref.actor.data_loader_seed"
OWN_LOOPS = "+actor_rollout_ref.rollout.agent.agent_loop_config_path=/loops.yaml"


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        ([*ADAPTIVE, "+algorithm.kl_ctrl.target_kl=0"], ["float division by zero"]),
        ([*ADAPTIVE, "+algorithm.kl_ctrl.target_kl=0.1"], []),
        (["+algorithm.kl_ctrl.type=adaptive", "+algorithm.kl_ctrl.target_kl=0"], []),
        ([f"{LOG_PROBS}=True", f"{BYPASS}=False", f"{BOUND}=0.5-5.0"], ["Invalid threshold '0.5-5.0'."]),
        ([f"{LOG_PROBS}=True", f"{BYPASS}=False", f"{BOUND}='2.0'"], []),
        ([f"{LOG_PROBS}=False", f"{BYPASS}=False", f"{BOUND}=0.5-5.0"], []),
        ([f"{LOG_PROBS}=True", f"{BYPASS}=True", f"{BOUND}=0.5-5.0"], []),
        ([f"{LOG_PROBS}=False", f"{BYPASS}=True"], ["'rollout_log_probs'"]),
        ([f"{LOG_PROBS}=False", f"{BYPASS}=True", OWN_LOOPS], []),
        ([f"{LOG_PROBS}=True", f"{BYPASS}=True"], []),
        ([f"{SEED}=null"], ["unsupported operand type(s) for +: 'NoneType' and another"]),
        ([f"{SEED}=7"], []),
        ([f"{ROLLOUT}.engine_kwargs=null"], ["'NoneType' object has no attribute 'get'"]),
        ([f"{ROLLOUT}.engine_kwargs.vllm=null"], []),
    ],
)
def test_settings_are_followed_to_the_first_batch(tmp_path: Path, words: list[str], texts: list[str]) -> None:
    place(tmp_path, "verl/trainer/ppo/core_algos.py", ALGORITHMS)
    place(tmp_path, "verl/trainer/ppo/rollout_corr_helper.py", CORRECTION)
    place(tmp_path, "verl/trainer/ppo/ray_trainer.py", UPDATES)
    place(tmp_path, "verl/workers/engine_workers.py", TRAINING)
    assert [found.text for found in raised(tmp_path, *words).raised] == texts


def test_probabilities_of_the_engine_are_suggested_where_they_are_taken(tmp_path: Path) -> None:
    place(tmp_path, "verl/trainer/ppo/core_algos.py", ALGORITHMS)
    place(tmp_path, "verl/trainer/ppo/ray_trainer.py", UPDATES)
    (found,) = raised(tmp_path, f"{LOG_PROBS}=False", f"{BYPASS}=True").raised
    assert (found.nearest_key, found.nearest) == (LOG_PROBS[1:], "True")
    assert found.others == ((BYPASS[1:], "False"),)


def test_seed_that_the_worker_replaces_may_be_missing(tmp_path: Path) -> None:
    place(tmp_path, "verl/trainer/ppo/ray_trainer.py", UPDATES)
    replaced = TRAINING.replace(
        "        loader", "        if seed is None:\n            seed = 1\n        loader"
    )
    place(tmp_path, "verl/workers/engine_workers.py", replaced)
    assert not raised(tmp_path, f"{SEED}=null").raised


RENDERS = """\
class AgentLoopBase:
    def first(self):
        return apply_chat_template(self.tokenizer, add_generation_prompt=True, tools=[], **self.chat_template_kwargs)

    def later(self):
        return self.tokenizer.apply_chat_template(add_generation_prompt=False, **self.chat_template_kwargs)
"""


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("add_generation_prompt=True", ["apply_chat_template() got multiple values for keyword argument 'add_generation_prompt'"]),
        ("tools=[]", []),
        ("enable_thinking=False", []),
    ],
)  # fmt: skip
def test_arguments_that_each_call_of_the_template_gives_itself(
    tmp_path: Path, name: str, texts: list[str]
) -> None:
    place(tmp_path, "verl/experimental/agent_loop/agent_loop.py", RENDERS)
    found = raised(tmp_path, f"+data.apply_chat_template_kwargs.{name}").raised
    assert [problem.text for problem in found] == texts
