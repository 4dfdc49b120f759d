"""The parts of a job whose code is followed with its settings.

They are engines, trainers, losses, rewards, and what they hand to libraries.

vLLM's sampling parameters and torch's optimizer are followed with the arguments that verl passes to them.
"""

from __future__ import annotations

import ast
import contextlib
import math
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.engine_server import SERVER, handed_arguments
from verl_doctor.toolkit.collectors.configuration.registries import ESTIMATOR
from verl_doctor.toolkit.collectors.configuration.registry_reader import registrations
from verl_doctor.toolkit.collectors.configuration.validation.advantage import Estimator
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.definitions import ClassNode, FunctionNode
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.follower import Follower
from verl_doctor.toolkit.sources.python.refusals.refused import NotFollowedError, Refusal, RefusedError
from verl_doctor.toolkit.sources.python.refusals.values import Made, Section
from verl_doctor.toolkit.sources.python.source import SourceTree, dotted, parsed, walk

ROLLOUT = "actor_rollout_ref.rollout"
_DATASET = "verl.utils.dataset.multiturn_sft_dataset.MultiTurnSFTDataset"
ACTOR = "actor_rollout_ref.actor"
_VALUES, _CRITIC = (
    "values",
    "critic.enable",
)  # the estimates of a critic, and the switch without which there is none
_ALGORITHMS = "verl.trainer.ppo.core_algos"
ALGORITHMS_FILE = "trainer/ppo/core_algos.py"
JUDGE = "reward.reward_model"
_JUDGES = "verl.experimental.reward_loop.reward_model.RewardModelManager"
_SAMPLING = "vllm.sampling_params.SamplingParams"
_SAMPLED = ("temperature", "top_p", "top_k")
_BUFFER = "verl.trainer.ppo.v1.replay_buffer.ReplayBuffer"
SAMPLER = "trainer.v1.sampler"
GROUPS = "algorithm.filter_groups"
_SCHEDULER = "vllm.config.scheduler.SchedulerConfig"
SCHEDULED = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
_ENGINE = "verl.workers.engine.fsdp.transformer_impl.FSDPEngine"
_MODEL = "actor_rollout_ref.model"
MANAGERS = ("reward.reward_manager.name", "reward_model.reward_manager")
TEMPLATE_ARGUMENTS = "data.apply_chat_template_kwargs"
_RENDERERS = (
    "experimental/agent_loop/agent_loop.py",
    "utils/tokenizer/continuous_token.py",
    "utils/tokenizer/chat_template.py",
    "utils/chat_template.py",
    "utils/dataset/multiturn_sft_dataset.py",
)
_ADAPTIVE = "AdaptiveKLController"
CORRECTION = "algorithm.rollout_correction"
_CORRECTION = "verl.trainer.ppo.rollout_corr_helper"
_WORKER = "verl.workers.engine_workers.TrainingWorker"
_BUILDER = "verl.workers.config.optimizer.build_optimizer"
# The class of a value about which no more is known.
_ANYTHING = ClassNode(ast.ClassDef("object", [], [], [], []), "")


def data_set(follower: Follower) -> None:
    """Follow the constructor of verl's data set for conversations, with the settings of `data`."""
    owner = follower.definitions.named(_DATASET)
    if isinstance(owner, ClassNode):
        follower.constructed(owner, {"config": Section("data")})


def engine(follower: Follower, section: str, optim: str, method: str) -> None:
    """Follow a method of the FSDP engine, with the configuration of one of the job's models."""
    owner = follower.definitions.named(_ENGINE)
    if not isinstance(owner, ClassNode):
        return
    model = {"engine": "model", "critic.fsdp": "critic.model"}.get(section, _MODEL)
    fields: dict[str, Any] = {
        "engine_config": follower.made(section),
        "model_config": follower.settings.value_at(model),
    }
    if optim:
        fields["optimizer_config"] = optimizer = follower.made(optim)
        if isinstance(optimizer, Made):  # set by the trainer
            optimizer.fields["total_training_steps"] = UNCLEAR
    if method == "__init__":
        follower.constructed(owner, fields)
    else:
        follower.method_of(Made(owner, fields), method, {})


def method(follower: Follower, name: str, method: str, fields: Mapping[str, str]) -> None:
    """Follow a method of one of verl's classes, with configuration sections in its fields."""
    owner = follower.definitions.named(name) if name else None
    if isinstance(owner, ClassNode):
        sections = {
            field: follower.settings.value_at(key) if key else Section("") for field, key in fields.items()
        }
        follower.method_of(Made(owner, dict(sections)), method, sections)


def function(follower: Follower, name: str, argument: str, key: str) -> None:
    """Follow a function of verl's algorithms with a single known argument."""
    function = follower.definitions.named(f"{_ALGORITHMS}.{name}")
    if isinstance(function, FunctionNode):
        follower.call(function, (), {argument: follower.settings.value_at(key)}, {argument: (key,)})


def kl_controller(follower: Follower) -> None:
    """Follow the KL penalty controller's first update: any divergence, which is a Python number, will do."""
    owner = follower.definitions.named(f"{_ALGORITHMS}.{_ADAPTIVE}")
    keys = {"target": "algorithm.kl_ctrl.target_kl", "horizon": "algorithm.kl_ctrl.horizon"}
    if isinstance(owner, ClassNode) and follower.settings.value_at("algorithm.kl_ctrl.type") == "adaptive":
        fields = {"value": UNCLEAR, **{name: follower.settings.value_at(key) for name, key in keys.items()}}
        follower.settings.read.clear()
        follower.method_of(Made(owner, fields, keys), "update", {"current_kl": 0.5, "n_steps": 1})


def rollout_correction(follower: Follower) -> None:
    """Follow what corrects for the difference between the engine and the trainer, with its settings."""
    corrects = follower.definitions.named(f"{_CORRECTION}.compute_rollout_correction_and_add_to_batch")
    if isinstance(corrects, FunctionNode):
        follower.call(corrects, (UNCLEAR, Section(CORRECTION)), {})


def bypassed(follower: Follower, trainer: str) -> None:
    """Follow what takes the engine's log probabilities for the old ones, where the engine gives none."""
    keys = (f"{ROLLOUT}.calculate_log_probs", f"{CORRECTION}.bypass_mode")
    if [follower.settings.look(key) for key in keys] != [False, True]:
        return  # another configuration is tried
    owner = follower.definitions.named(trainer)
    bypass = (
        follower.definitions.method(owner, "_compute_old_log_prob") if isinstance(owner, ClassNode) else None
    )
    for node in walk(bypass.node) if bypass is not None else ():
        match node:
            case ast.Call(
                func=ast.Attribute(attr="pop"), args=[ast.Constant(value="rollout_log_probs" as name)]
            ):
                place = follower.definitions.place(bypass.module, node.lineno) if bypass else ""
                raise RefusedError(Refusal("KeyError", f"'{name}'", place, "", keys))
    applies = follower.definitions.named(f"{_CORRECTION}.apply_bypass_mode")
    if bypass is None and isinstance(applies, FunctionNode):
        batch = Made(_ANYTHING, {"batch": {}}, {"batch": f"{ROLLOUT}.calculate_log_probs"})
        follower.call(applies, (), {"batch": batch})


def mini_batches(follower: Follower, trainer: str, method: str) -> None:
    """Follow what a worker makes its mini batches with: settings in a dictionary from a trainer's method."""
    owner, worker = follower.definitions.named(trainer), follower.definitions.named(_WORKER)
    if not isinstance(owner, ClassNode) or not isinstance(worker, ClassNode):
        return
    update, train = (
        follower.definitions.method(owner, method),
        follower.definitions.method(worker, "train_mini_batch"),
    )
    if update is None or train is None:
        return
    handed = {
        name.value: dotted(value).removeprefix("self.config.")
        for node in walk(update.node)
        if isinstance(node, ast.Dict)
        for name, value in zip(node.keys, node.values, strict=True)
        if isinstance(name, ast.Constant) and dotted(value).startswith("self.config.")
    }
    bound = Counter(
        node.id for node in walk(train.node) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    taken: dict[str, str] = {}
    for statement in train.node.body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Attribute(attr="pop"),
                    keywords=[ast.keyword(arg="key", value=ast.Constant(value=key)), *_],
                ),
            ) if key in handed and bound[name] == 1:
                taken[name] = handed[key]
            case ast.Assign(value=ast.Call() as call):
                for name, key in taken.items():
                    follower.settings.read.clear()
                    names = {name: follower.settings.value_at(key)}
                    if names[name] is None:
                        follower.called_as(call, train.module, names)


def template_arguments(follower: Follower, verl: SourceTree) -> None:
    """Refuse an argument of the chat template that each of verl's calls gives itself."""
    section = follower.settings.value_at(TEMPLATE_ARGUMENTS)
    names = follower.settings.names_in(section) if isinstance(section, Section) else ()
    if not names:
        return
    calls = [
        (path, node)
        for path in (verl.folder / name for name in _RENDERERS)
        if os.path.isfile(path) and (tree := parsed(path)) is not None
        for node in walk(tree)
        if isinstance(node, ast.Call)
        and dotted(node.func).endswith("apply_chat_template")
        and any(
            word.arg is None and dotted(word.value).endswith("chat_template_kwargs") for word in node.keywords
        )
    ]
    given = [{word.arg for word in node.keywords} for _, node in calls]
    for name in names:
        if given and all(name in each for each in given):
            words = f"apply_chat_template() got multiple values for keyword argument '{name}'"
            path, node = calls[0]
            raise RefusedError(
                Refusal("TypeError", words, f"{path}:{node.lineno}", "", (f"{TEMPLATE_ARGUMENTS}.{name}",))
            )


def registered(follower: Follower, verl: SourceTree, decorator: str, name: object) -> None:
    """Follow the loss function registered under the job's name, with the actor's configuration."""
    config = follower.made(ACTOR)
    for node in registrations(verl.folder / ALGORITHMS_FILE, decorator, name):
        if isinstance(node, ast.FunctionDef):
            follower.call(FunctionNode(node, _ALGORITHMS), (), {"config": config})


def estimator(follower: Follower, estimator: Estimator, *, values: bool) -> None:
    """Follow the estimator with the arguments that it gets.

    No other one means the same. `values`: a critic estimates them.
    """
    if estimator.refusal is not None:
        raise RefusedError(estimator.refusal)
    if not values and _VALUES in estimator.required and follower.settings.value_at(_CRITIC) is False:
        place = follower.definitions.place(_ALGORITHMS, estimator.function.lineno)
        raise RefusedError(Refusal("KeyError", f"'{_VALUES}'", place, "", (_CRITIC, ESTIMATOR)))
    given = dict.fromkeys(estimator.given, Made(_ANYTHING, {}))
    follower.call(FunctionNode(estimator.function, _ALGORITHMS), (), given | {"config": Section("algorithm")})


def reward_manager(follower: Follower, verl: SourceTree, configuration: Configuration) -> None:
    """Follow the constructor of the reward manager that the job names.

    It gets the configuration or, in older releases, its `reward_kwargs`.
    """
    names = (configuration.get(key) for key in MANAGERS)
    name = next((name for name in names if isinstance(name, str)), None)
    given = configuration.get("reward_model.reward_kwargs")
    named: dict[str, Any] = (
        {key: follower.settings.value_at(f"reward_model.reward_kwargs.{key}") for key in given}
        if isinstance(given, Mapping)
        else {}
    )
    for folder in ("experimental/reward_loop/reward_manager", "workers/reward_manager"):
        for path in sorted((verl.folder / folder).glob("*.py")):
            for node in registrations(path, "register", name):
                if isinstance(node, ast.ClassDef):
                    owner = ClassNode(node, verl.name_of(path) or "")
                    follower.constructed(owner, {"config": Section(""), **named})


def reward_model(follower: Follower, configuration: Configuration) -> None:
    """Follow what starts the reward model's engines, on its own pool's GPUs or the trainer's."""
    section = JUDGE if configuration.get(f"{JUDGE}.enable_resource_pool") is True else "trainer"
    counts = [configuration.number(f"{section}.{name}") for name in ("nnodes", "n_gpus_per_node")]
    world = math.prod(int(count) for count in counts if count) if all(counts) else UNCLEAR
    owner = follower.definitions.named(_JUDGES)
    if isinstance(owner, ClassNode):
        keys = {"world_size": f"{section}.n_gpus_per_node"}
        fields = {"config": Section(JUDGE), "resource_pool": Made(_ANYTHING, {"world_size": world}, keys)}
        follower.method_of(Made(owner, fields), "_initialize_llm_servers", {})


def replay_buffer(follower: Follower) -> None:
    """Follow verl's own buffer of samples, with the settings that its trainer passes on."""
    owner = follower.definitions.named(_BUFFER)
    if not isinstance(owner, ClassNode):
        return
    look = follower.settings.value_at
    keys = {name: f"{SAMPLER}.{name}" for name in ("max_off_policy_threshold", "max_off_policy_strategy")} | {
        "max_inflight_gen_batches": f"{GROUPS}.max_inflight_gen_batches"
    }
    known = {name: value for name, key in keys.items() if (value := look(key)) is not MISSING}
    metric = look(f"{GROUPS}.metric") if look(f"{GROUPS}.enable") is True else None
    from_keys: dict[str | int, tuple[str, ...]] = {name: (keys[name],) for name in known}
    follower.constructed(owner, {**known, "filter_groups_metric": metric, "refill_fn": UNCLEAR}, from_keys)


def sampling(follower: Follower, section: str) -> None:
    """Follow vLLM's check of the parameters that agent loops pass on."""
    owner = follower.definitions.named(_SAMPLING)
    if not isinstance(owner, ClassNode):
        return
    values = {name: follower.settings.value_at(f"{section}.{name}") for name in _SAMPLED}
    known = {name: value for name, value in values.items() if isinstance(value, (int, float))}
    follower.checked(owner, known, {name: f"{section}.{name}" for name in known}, "_verify_args")


def scheduler(follower: Follower, verl: SourceTree) -> None:
    """Follow vLLM's comparison of its scheduler's numbers, from the settings that verl's server passes on.

    Without chunked prefill verl raises the number of tokens itself, or fails to; that is not followed here.
    """
    owner = follower.definitions.named(_SCHEDULER)
    if (
        not isinstance(owner, ClassNode)
        or follower.settings.value_at(f"{ROLLOUT}.enable_chunked_prefill") is False
    ):
        return
    keys = {name: f"{ROLLOUT}.{key}" for name, key in handed_arguments(verl.folder / SERVER)}
    more = follower.settings.value_at(f"{ROLLOUT}.engine_kwargs.vllm")
    if isinstance(more, Section):
        keys |= {name: f"{more.key}.{name}" for name in follower.settings.names_in(more)}
    keys = {name: key for name, key in keys.items() if name in SCHEDULED}
    values = {name: follower.settings.value_at(key) for name, key in keys.items()}
    known = {name: value for name, value in values.items() if type(value) is int}
    length = {"max_model_len": known.pop("max_model_len", UNCLEAR)}
    fields = {**length, **known, "chunked_prefill_enabled": True}
    for method in ("verify_max_model_len", "_verify_args"):
        follower.checked(owner, fields, {name: keys[name] for name in known}, method, length)


def optimizer(follower: Follower, section: str) -> None:
    """Follow what verl makes of the optimizer's arguments, and torch's check of them."""
    builder = follower.definitions.named(_BUILDER)
    if isinstance(builder, FunctionNode):
        with contextlib.suppress(NotFollowedError):
            follower.call(builder, (UNCLEAR, follower.made(section)), {})
    name, source = (
        follower.settings.value_at(f"{section}.optimizer"),
        follower.settings.value_at(f"{section}.optimizer_impl"),
    )
    owner = follower.definitions.named(f"{source}.{name}") if source == "torch.optim" else None
    if not isinstance(owner, ClassNode):
        return
    given: dict[str, Any] = {}
    keys: dict[str | int, tuple[str, ...]] = {}
    more = follower.settings.value_at(f"{section}.override_optimizer_config")
    for argument, key in (("lr", "lr"), ("betas", "betas"), ("weight_decay", "weight_decay")):
        if argument != "betas" or "adam" in name.lower():  # as build_optimizer passes them on
            given[argument], keys[argument] = (
                follower.settings.value_at(f"{section}.{key}"),
                (f"{section}.{key}",),
            )
    if isinstance(more, Section):
        for argument in follower.settings.names_in(more):
            key = f"{more.key}.{argument}"
            given[argument], keys[argument] = follower.settings.value_at(key), (key,)
    follower.constructed(owner, given, keys)
