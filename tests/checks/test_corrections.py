"""What rules propose to write into the launch script, and whether the proposal is safe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verl_doctor.checks.attention.trainer_attention_unknown import trainer_attention_unknown
from verl_doctor.checks.configuration.batch_size_below_one import batch_size_below_one
from verl_doctor.checks.configuration.checkpoint_folder_unusable import checkpoint_folder_unusable
from verl_doctor.checks.configuration.choice_unknown import _is_misspelt, _nearest
from verl_doctor.checks.configuration.config_value_of_wrong_type import config_value_of_wrong_type
from verl_doctor.checks.configuration.job_makes_no_step import job_makes_no_step
from verl_doctor.checks.configuration.module_missing import module_missing
from verl_doctor.checks.configuration.own_file_unusable import own_file_unusable
from verl_doctor.checks.configuration.path_begins_with_nothing import path_begins_with_nothing
from verl_doctor.checks.configuration.processes_cannot_meet import (
    _GPUS,
    _launch,
    _run,
    processes_cannot_meet,
)
from verl_doctor.checks.configuration.reward_function_missing import reward_function_missing
from verl_doctor.checks.configuration.verl_would_refuse_config import verl_would_refuse_config
from verl_doctor.checks.datasets._data import DEMANDS, TABLE, TRAIN, VALIDATION, tables
from verl_doctor.checks.datasets.conversations_unusable import conversations_unusable
from verl_doctor.checks.datasets.data_column_missing import data_column_missing
from verl_doctor.checks.datasets.data_file_missing import data_file_missing
from verl_doctor.checks.datasets.data_rows_too_few import data_rows_too_few
from verl_doctor.checks.datasets.media_without_processor import media_without_processor
from verl_doctor.checks.datasets.no_prompt_usable import no_prompt_usable
from verl_doctor.checks.gpus.visible_devices_invalid import visible_devices_invalid
from verl_doctor.checks.interpreter.module_not_found import module_not_found
from verl_doctor.checks.loading.adapter_matches_nothing import adapter_matches_nothing
from verl_doctor.checks.loading.chat_template_missing import chat_template_missing
from verl_doctor.checks.loading.other_model_missing import other_model_missing
from verl_doctor.checks.ray.cluster_refuses_arguments import cluster_refuses_arguments
from verl_doctor.checks.ray.ray_address_is_none import ray_address_is_none
from verl_doctor.checks.ray.ray_init_refuses import (
    _ACCEPTS_MORE,
    _TAKES,
    _WITH_RUNTIME_ENV,
    KEY,
    ray_init_refuses,
)
from verl_doctor.checks.shared.configuration import SCRIPT, configured
from verl_doctor.checks.shared.gpus import healthy, node
from verl_doctor.checks.shared.launch_examples import FILES
from verl_doctor.checks.shared.network_examples import ONE
from verl_doctor.checks.shared.ray import ray_place
from verl_doctor.checks.variables.tracker_without_key import tracker_without_key
from verl_doctor.toolkit.collectors.configuration.config_classes import ConfigClasses
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.configuration.own_files import OwnFile, OwnFiles
from verl_doctor.toolkit.collectors.configuration.reward_function import RewardFunction
from verl_doctor.toolkit.collectors.configuration.validation.validation import Raised, Validation
from verl_doctor.toolkit.collectors.host.output_folders import TrackerFolder
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.hollow_paths import HollowPaths
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting, Word
from verl_doctor.toolkit.collectors.model.adapter_modules import AdapterModules
from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate
from verl_doctor.toolkit.collectors.model.chat_template_syntax import ChatTemplateError
from verl_doctor.toolkit.collectors.model.data_demands import ConversationDemands
from verl_doctor.toolkit.collectors.model.data_files import DataFiles
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.other_models import OtherModel, OtherModels
from verl_doctor.toolkit.collectors.model.rendered_prompts import RenderedPrompts
from verl_doctor.toolkit.collectors.ray.addresses import RayAddresses
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.missing_modules import MissingModule, MissingModules
from verl_doctor.toolkit.collectors.variables.program_module import ProgramModule
from verl_doctor.toolkit.collectors.variables.trackers import Tracker, Trackers
from verl_doctor.toolkit.collectors.variables.visible_devices import Choice, VisibleDevices
from verl_doctor.toolkit.collectors.vllm.trainer_attention import TrainerAttention
from verl_doctor.toolkit.rule import Check, Finding
from verl_doctor.toolkit.testing import run_check

SAFE, CHANGED = "script-word", "script-word-changed"
TARGETS, EXCLUDED = "actor_rollout_ref.model.target_modules", "actor_rollout_ref.model.exclude_modules"
NAMES = ("k_proj", "q_proj", "v_proj")
NEVER = ("++trainer.val_before_train=False", "++trainer.test_freq=-1")
TALKS = ConversationDemands("/env/verl/data.py", ("images",), "messages")
TEXTS = Column("messages", "list<struct<content: string, role: string>>")
TEXT_MODEL = Model("/models/qwen", "--model", ("Qwen2ForCausalLM",), "qwen2", has_processor=False)
TEMPLATE = "actor_rollout_ref.model.custom_chat_template"
ATTENTION, TOKENIZER = (
    "actor_rollout_ref.model.override_config.attn_implementation",
    "actor_rollout_ref.model.tokenizer_path",
)
FOUR = node(*map(healthy, range(4)))
NO_VARIABLES = Variables({})


def tuned(*words: str, **tree: Any) -> Configuration:
    (found,) = configured(*words, tree=tree)
    return replace(found, program="/env/verl/trainer/sft_trainer.py")


def setting(name: str, value: str) -> Launch:
    return Launch(FILES, settings=(Setting(name, value, SCRIPT, 2),))


def finding_of(check: Check, *facts: Any) -> Finding:
    (finding, *_) = run_check(check, *facts).findings
    return finding


ADAPTER = AdapterModules("/models/x", "target_modules", TARGETS, NAMES)
LONG = RenderedPrompts(2, shortest=100)
EMPTY_VALIDATION = DataTables((TABLE, replace(TABLE, file=VALIDATION, rows=0)))


@pytest.mark.parametrize(
    ("check", "facts", "fix", "rewrites"),
    [
        (adapter_matches_nothing, (*configured(f"+{TARGETS}=[q_proj v_proj]"), ADAPTER), SAFE, {f"+{TARGETS}=[q_proj v_proj]": f"+{TARGETS}=[q_proj,v_proj]"}),
        (adapter_matches_nothing, (*configured(f"+{TARGETS}=[q,v]"), ADAPTER), SAFE, {f"+{TARGETS}=[q,v]": f"+{TARGETS}=[q_proj,v_proj]"}),
        (adapter_matches_nothing, (*configured(f"+{TARGETS}=[query]"), ADAPTER), CHANGED, {f"+{TARGETS}=[query]": None}),
        (adapter_matches_nothing, (*configured(f"+{EXCLUDED}=.*"), replace(ADAPTER, lacking="exclude_modules", key=EXCLUDED)), CHANGED, {f"+{EXCLUDED}=.*": None}),
        (batch_size_below_one, configured("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=0"), SAFE, {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=0": "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"}),
        (batch_size_below_one, configured("actor_rollout_ref.actor.ppo_mini_batch_size=-8"), CHANGED, {"actor_rollout_ref.actor.ppo_mini_batch_size=-8": None}),
        (job_makes_no_step, (tuned("trainer.total_epochs=null", trainer={"total_epochs": 4}),), CHANGED, {"trainer.total_epochs=null": None}),
        (no_prompt_usable, (*configured("data.max_prompt_length=8", "++data.filter_overlong_prompts=True"), tables(), ChatTemplate("/m", "/m/t"), LONG), CHANGED, {"data.max_prompt_length=8": None}),
        (no_prompt_usable, (*configured("data.max_prompt_length=8", "++data.filter_overlong_prompts=True"), tables(), ChatTemplate("/m", "/m/t"), replace(LONG, shortest=400)), None, {}),
        (chat_template_missing, (*configured(f"++{TEMPLATE}=mine"), ChatTemplate("/m", TEMPLATE, text="mine", of_tokenizer="/m/chat_template.jinja"), ChatTemplateError(TEMPLATE, "no end", 1)), CHANGED, {f"++{TEMPLATE}=mine": None}),
        (chat_template_missing, (*configured(f"++{TEMPLATE}=mine"), ChatTemplate("/m", TEMPLATE, text="mine"), ChatTemplateError(TEMPLATE, "no end", 1)), None, {}),
        (data_column_missing, (tables(Column("prompt", ""), Column("question", "string")), replace(DEMANDS, prompt="questions"), *configured("++data.prompt_key=questions")), CHANGED, {"++data.prompt_key=questions": "++data.prompt_key=question"}),
        (conversations_unusable, (tuned("data.messages_key=message", data={"messages_key": "messages"}), tables(TEXTS)), CHANGED, {"data.messages_key=message": "data.messages_key=messages"}),
        (conversations_unusable, (tuned("data.messages_key=prompts", data={"messages_key": "messages"}), tables(replace(TEXTS, name="dialogue"))), CHANGED, {"data.messages_key=prompts": "data.messages_key=dialogue"}),
        (conversations_unusable, (tuned("data.messages_key=data_source", data={"messages_key": "messages"}), tables(TEXTS)), CHANGED, {"data.messages_key=data_source": "data.messages_key=messages"}),
        (conversations_unusable, (tuned("data.messages_key=talks", data={"messages_key": "messages"}), tables(TEXTS, replace(TEXTS, name="long"))), None, {}),
        (conversations_unusable, (tuned("++data.val_files=/v", "++trainer.test_freq=1", data={"messages_key": "messages"}), DataTables((replace(TABLE, columns=(TEXTS,)), replace(TABLE, file=VALIDATION)))), CHANGED, {"++data.val_files=/v": "++data.val_files=null", "++trainer.test_freq=1": "++trainer.test_freq=-1"}),
        (media_without_processor, (tables(TEXTS, Column("images", "list<null>")), TALKS, TEXT_MODEL, tuned("++a.b=1", data={})), SAFE, {"": "+data.image_key=none"}),
        (media_without_processor, (tables(TEXTS, Column("images", "list<string>")), TALKS, TEXT_MODEL, tuned("++a.b=1", data={})), None, {}),
        (data_file_missing, (DataFiles((TRAIN,)), *configured("++data.val_files=null", *NEVER)), CHANGED, {"++data.val_files=null": "++data.val_files=/data/train.parquet"}),
        (data_file_missing, (DataFiles((TRAIN,)), *configured("++data.val_files=null")), None, {}),
        (data_file_missing, (DataFiles((replace(TRAIN, path="/data/all", trouble="folder", inside=("/data/all/a.parquet", "/data/all/b.parquet")),)), *configured("data.train_files=/data/all")), CHANGED, {"data.train_files=/data/all": "data.train_files=[/data/all/a.parquet,/data/all/b.parquet]"}),
        (data_file_missing, (DataFiles((replace(TRAIN, path="/there/t.parquet", trouble="missing", beside="/here/t.parquet"),)), *configured("data.train_files=t.parquet")), CHANGED, {"data.train_files=t.parquet": "data.train_files=/here/t.parquet"}),
        (data_rows_too_few, (EMPTY_VALIDATION, DEMANDS, *configured("++data.val_files=/data/validation.parquet", *NEVER)), CHANGED, {"++data.val_files=/data/validation.parquet": "++data.val_files=/data/train.parquet"}),
        (data_rows_too_few, (EMPTY_VALIDATION, DEMANDS, *configured("++data.val_files=/data/validation.parquet")), None, {}),
        (cluster_refuses_arguments, (RayAddresses((ray_place(),)), *configured("ray_kwargs.ray_init.num_cpus=16")), SAFE, {"ray_kwargs.ray_init.num_cpus=16": None}),
        (ray_address_is_none, (RayAddresses((replace(ray_place("auto"), path=SCRIPT, line=2),)), ONE), CHANGED, {"RAY_ADDRESS=auto": None}),
        (reward_function_missing, (*configured('+custom_reward_function.path="~/r.py"'), RewardFunction("custom_reward_function", "~/r.py", "f", "unexpanded", expanded="/home/me/r.py")), SAFE, {'+custom_reward_function.path="~/r.py"': "+custom_reward_function.path=/home/me/r.py"}),
        (reward_function_missing, (*configured("+custom_reward_function.path=r.py"), RewardFunction("custom_reward_function", "r.py", "f", "missing", beside="/home/me/r.py")), CHANGED, {"+custom_reward_function.path=r.py": "+custom_reward_function.path=/home/me/r.py"}),
        (checkpoint_folder_unusable, (*configured(), TrackerFolder("/proc/l", "/proc", "of the kernel", "file", "LOGS"), NO_VARIABLES, setting("LOGS", "/proc/l")), CHANGED, {"LOGS=/proc/l": None}),
        (tracker_without_key, (*configured(), Trackers((Tracker("wandb", True, mode="offlin", modes=("online", "offline")),)), NO_VARIABLES, setting("WANDB_MODE", "offlin")), SAFE, {"WANDB_MODE=offlin": "WANDB_MODE=offline"}),
        (tracker_without_key, (*configured("++trainer.project_name=a/b"), Trackers((Tracker("wandb", True, mode="offline", barred="/#"),))), CHANGED, {"++trainer.project_name=a/b": "++trainer.project_name=a-b"}),
        (module_missing, (*configured(), MissingModules((MissingModule("modelscope", "VERL_USE_MODELSCOPE", "import"),)), NO_VARIABLES, setting("VERL_USE_MODELSCOPE", "True")), CHANGED, {"VERL_USE_MODELSCOPE=True": None}),
        (trainer_attention_unknown, (TrainerAttention("spda", ATTENTION, False, "", True, known=("sdpa", "eager")), *configured(f"++{ATTENTION}=spda")), SAFE, {f"++{ATTENTION}=spda": f"++{ATTENTION}=sdpa"}),
        (trainer_attention_unknown, (TrainerAttention("x", ATTENTION, False, "", True, known=("sdpa", "eager")), *configured(f"++{ATTENTION}=x")), SAFE, {f"++{ATTENTION}=x": None}),
        (processes_cannot_meet, (*configured(), _launch("torchrun", "--num_gpus_per_node=1"), JobProcesses(True, "torchrun", {}, ("--num_gpus_per_node",), ("nnodes", "nproc_per_node")), JobVariables()), SAFE, {"--num_gpus_per_node=1": "--nproc_per_node=1"}),
        (processes_cannot_meet, (*configured(), _launch(), JobProcesses(True), JobVariables()), CHANGED, {"python3": "torchrun --standalone --nnodes=1 --nproc_per_node=1"}),
        (processes_cannot_meet, (*configured(), _launch("torchrun", "--standalone", "--nproc_per_node=8"), _run(standalone=None, nproc_per_node="8"), _GPUS, JobVariables()), CHANGED, {"--nproc_per_node=8": "--nproc_per_node=4"}),
        (visible_devices_invalid, (FOUR, VisibleDevices((0,), Choice("0,7", (0,), "7", path=SCRIPT, line=2))), CHANGED, {"CUDA_VISIBLE_DEVICES=0,7": "CUDA_VISIBLE_DEVICES=0"}),
        (visible_devices_invalid, (FOUR, VisibleDevices((), Choice("7", (), "7", path=SCRIPT, line=2))), CHANGED, {"CUDA_VISIBLE_DEVICES=7": None}),
        (visible_devices_invalid, (FOUR, VisibleDevices((), Choice("GPU-1", (), "GPU-1", path=SCRIPT, line=2))), None, {}),
        (other_model_missing, (*configured(f"++{TOKENIZER}=/gone"), OtherModels((OtherModel(TOKENIZER, "/gone", "verl reads the tokenizer there", False),))), CHANGED, {f"++{TOKENIZER}=/gone": None}),
        (own_file_unusable, (*configured("++trainer.resume_mode=resume_path"), OwnFiles((OwnFile("trainer.resume_from_path", "", "no path", "first batch"),))), CHANGED, {"++trainer.resume_mode=resume_path": "++trainer.resume_mode=auto"}),
        (ray_init_refuses, (*configured(f"+{KEY}.logging_level=debugging"), _ACCEPTS_MORE, RayAddresses()), SAFE, {f"+{KEY}.logging_level=debugging": f"+{KEY}.logging_level=debug"}),
        (ray_init_refuses, (*configured(f"+{KEY}.namespace=5"), _ACCEPTS_MORE, RayAddresses()), SAFE, {f"+{KEY}.namespace=5": f"+{KEY}.namespace='5'"}),
        (ray_init_refuses, (*configured(f"{KEY}.runtime_env=null", tree=_WITH_RUNTIME_ENV), _TAKES, RayAddresses()), SAFE, {f"{KEY}.runtime_env=null": None}),
        (ray_init_refuses, (*configured(f"+{KEY}.runtime_env.env_vars=['A=b','C=1']"), _TAKES, RayAddresses()), SAFE, {f"+{KEY}.runtime_env.env_vars=['A=b','C=1']": f"+{KEY}.runtime_env.env_vars={{A:'b',C:'1'}}"}),
        (ray_init_refuses, (*configured(f"+{KEY}.runtime_env.env_vars=[A]"), _TAKES, RayAddresses()), None, {}),
        (module_not_found, (ProgramModule("recipe.dapo.main_dapo", SCRIPT, 2, "/verl", missing=True, programs=("verl.experimental.dapo.main_dapo",), lacking="recipe.dapo"),), "script-module", {}),
        (data_file_missing, (DataFiles((replace(TRAIN, path="/job/t.parquet", trouble="missing", left_behind=True),)), *configured("data.train_files=t.parquet")), SAFE, {"data.train_files=t.parquet": "data.train_files=/job/t.parquet"}),
        (data_file_missing, (DataFiles((TRAIN, replace(TRAIN, role="val", named_by="data.val_files", path="/default/v.parquet", trouble="missing"))), *configured(*NEVER)), CHANGED, {"": "+data.val_files=/data/train.parquet"}),
        (verl_would_refuse_config, (*configured("~data.max_prompt_length"), Validation((Raised("ConfigAttributeError", "no key", "/verl/x.py:3", "", ("data.max_prompt_length",), "workers"),))), CHANGED, {"~data.max_prompt_length": None}),
        (config_value_of_wrong_type, (*configured("trainer.logger=null", tree={"trainer": {"logger": ["console", "wandb"]}}), ConfigClasses(calculated={"trainer.logger": "/verl/x.py:3"})), CHANGED, {"trainer.logger=null": "trainer.logger=[console]"}),
        (path_begins_with_nothing, (HollowPaths(), Launch(FILES, hollow=(Word("trainer.nnodes=", SCRIPT, 2, "trainer.nnodes=$NODES"),)), *configured("trainer.nnodes=")), CHANGED, {"trainer.nnodes=": None}),
    ],
)  # fmt: skip
def test_rule_proposes_a_correction(
    check: Check, facts: tuple[Any, ...], fix: str | None, rewrites: dict[str, str | None]
) -> None:
    finding = finding_of(check, *facts)
    assert finding.severity in (None, "error")
    assert finding.fix == fix
    found = finding.correction.rewrites if finding.correction else ()
    assert {rewrite.old: rewrite.new for rewrite in found} == rewrites
    assert bool(finding.correction and finding.correction.effect) == (fix == CHANGED)


@pytest.mark.parametrize(
    ("value", "names", "near", "certain"),
    [
        ("async", ("sync", "colocate_async", "separate_async"), "", False),
        ("async", ("sync", "separate_async"), "separate_async", False),
        ("token_mean", ("token-mean", "seq-mean"), "token-mean", True),
        ("vlm", ("vllm", "sglang"), "vllm", True),
    ],
)
def test_opposite_is_no_misspelling(value: str, names: tuple[str, ...], near: str, certain: bool) -> None:
    assert _nearest(value, names) == near
    assert (bool(near) and _is_misspelt(value, near)) == certain


@pytest.mark.parametrize(
    ("value", "others", "fix"),
    [
        ("16", (), SAFE),
        ("16", (("actor_rollout_ref.rollout.max_num_seqs", "16"),), CHANGED),
    ],
)
def test_choice_among_several_accepted_values_is_not_safe(
    value: str, others: tuple[tuple[str, str], ...], fix: str
) -> None:
    tokens = "actor_rollout_ref.rollout.max_num_batched_tokens"
    raised = Raised(
        raised="ValueError",
        text="too few",
        read_from="/env/vllm/config.py:3",
        condition="tokens < seqs",
        keys=(tokens,),
        phase="engine",
        nearest_key=tokens,
        nearest="256",
        others=others,
        library="vllm",
    )
    found = finding_of(verl_would_refuse_config, *configured(f"++{tokens}={value}"), Validation((raised,)))
    assert found.correction is not None
    assert found.fix == fix
    assert found.correction.effect == (
        "this is a choice: actor_rollout_ref.rollout.max_num_seqs=16 would do too" if others else ""
    )
    assert [other.fix for other in found.correction.others] == [CHANGED] * len(others)


def test_name_that_differs_only_in_punctuation_is_no_choice() -> None:
    mode = "actor_rollout_ref.actor.loss_agg_mode"
    raised = Raised(
        raised="ValueError",
        text="Invalid loss_agg_mode: token_mean",
        read_from="/env/verl/workers/config/actor.py:220",
        condition="mode not in modes",
        keys=(mode,),
        phase="validation",
        nearest_key=mode,
        nearest="token-mean",
        others=((mode, "seq-mean-token-sum"),),
    )
    found = finding_of(verl_would_refuse_config, *configured(f"++{mode}=token_mean"), Validation((raised,)))
    assert (found.fix, found.correction and found.correction.effect) == (SAFE, "")
