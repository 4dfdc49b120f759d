"""Which code a job runs with its configuration, in the order in which it does."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import NamedTuple

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.configuration.registries import ESTIMATOR
from verl_doctor.toolkit.collectors.configuration.registry_reader import registrations
from verl_doctor.toolkit.collectors.configuration.roles import has_critic, has_reference, trains, validates
from verl_doctor.toolkit.collectors.configuration.validation import parts
from verl_doctor.toolkit.collectors.configuration.validation.advantage import Estimator
from verl_doctor.toolkit.collectors.configuration.validation.parts import (
    ACTOR,
    CORRECTION,
    GROUPS,
    JUDGE,
    MANAGERS,
    ROLLOUT,
    SAMPLER,
    SCHEDULED,
)
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.refusals.follower import Follower
from verl_doctor.toolkit.sources.python.refusals.values import Section
from verl_doctor.toolkit.sources.python.source import SourceTree, dotted, walk

_VALIDATE = "validate_config"
_MAKES = "omega_conf_to_dataclass"
_CUSTOM = "data.custom_cls.path"
_WHOLE = frozenset({"config", "self.config"})  # the names of the whole configuration in programs
_MODE = "trainer.v1.trainer_mode"
_IN_REWARD = "algorithm.use_kl_in_reward"
_TRAINERS = ("Trainer", "Rollouter")
_OLD_TRAINER = "verl.trainer.ppo.ray_trainer.RayPPOTrainer"
_STRATEGIES = ("fsdp", "fsdp2")
_SPLIT = "ulysses_sequence_parallel_size"  # of a role, which its engine takes over
_ENGINE_METHODS: tuple[tuple[str, Phase], ...] = (
    ("__init__", "workers"),
    ("_build_module", "workers"),
    ("_build_fsdp_module", "workers"),
    ("_build_lr_scheduler", "workers"),
    ("optimizer_step", "first update"),
)
# What the trainer collects its batches by: only certain values of these fit each other.
_BATCHING = ("trainer.v1.", "algorithm.filter_groups.", "data.gen_batch_size")
_OWN_LOOPS = f"{ROLLOUT}.agent.agent_loop_config_path"
_SERVER = "verl.workers.rollout.vllm_rollout.vllm_async_server.vLLMHttpServer"
_CONFIG = {"config": ""}  # the whole configuration, in the field of an object
# What a trainer does with its configuration, and where the job is then.
_METHODS: tuple[tuple[str, Phase], ...] = (
    ("__init__", "workers"),
    ("_validate_config", "workers"),
    ("_build_config", "workers"),
    ("_init_dataloader", "workers"),
    ("_init_resource_pool_mgr", "workers"),
    ("_load_checkpoint", "first batch"),
    ("fit", "first update"),
    ("step", "first batch"),
)
# Further parts of a job with rollouts: a class, its method, and the configuration sections in its fields.
_PARTS: tuple[tuple[str, str, Mapping[str, str], Phase], ...] = (
    (
        "verl.workers.rollout.llm_server.LLMServerManager",
        "_initialize_llm_servers",
        {"config": "", "rollout_config": ROLLOUT},
        "engine",
    ),
    (
        "verl.experimental.agent_loop.agent_loop.AgentLoopManager",
        "_init_agent_loop_workers",
        {"config": "", "rollout_config": ROLLOUT},
        "first batch",
    ),
    ("verl.experimental.agent_loop.agent_loop.AgentLoopWorker", "__init__", _CONFIG, "first batch"),
    ("verl.experimental.reward_loop.reward_loop.RewardLoopWorker", "__init__", _CONFIG, "first batch"),
    (
        "verl.experimental.reward_loop.reward_loop.RewardLoopManager",
        "_init_reward_loop_workers",
        _CONFIG,
        "first batch",
    ),
)
_TUNING: tuple[tuple[str, str, Mapping[str, str], Phase], ...] = (
    (
        "verl.utils.checkpoint.checkpoint_handler.CheckpointHandler",
        "_determine_resume_path",
        {"resume_mode": "trainer.resume_mode", "resume_from_path": "trainer.resume_from_path"},
        "workers",
    ),
)

_Followed = tuple[Callable[[Follower], object], Phase]


class Step(NamedTuple):
    """Code to follow, and where the job is then. If it is `needed`, what it raises stops any job."""

    follow: Callable[[Follower], object]
    phase: Phase
    needed: bool


def steps_of(
    tree: ast.Module,
    module: str,
    verl: SourceTree,
    estimators: Callable[..., Estimator | None],
    configuration: Configuration,
) -> Iterator[Step]:
    """Yield the steps of the program itself, then what is called once the configuration has been validated.

    `estimators` returns an estimator by its name, as trainers call it.
    """
    for follow, phase in _of_program(tree, module, configuration):
        yield Step(follow, phase, needed=True)
    for follow, phase in _later(tree, module, verl, estimators, configuration):
        yield Step(follow, phase, needed=False)


def _of_program(tree: ast.Module, module: str, configuration: Configuration) -> Iterator[_Followed]:
    """Yield the program's steps that can be followed, in order of execution."""
    names = {"config": Section("")}
    for node in walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        if name == _VALIDATE:
            yield (lambda follower, call=node: follower.called_as(call, module, names)), "validation"  # type: ignore[misc]
        elif name == _MAKES and len(node.args) == 1 and not node.keywords:
            whole, _, section = dotted(node.args[0]).partition("config.")
            if section and f"{whole}config" in _WHOLE and isinstance(configuration.get(section), dict):
                yield (lambda follower, key=section: follower.made(key)), "workers"  # type: ignore[misc]
    if module.endswith(".sft_trainer") and configuration.get(_CUSTOM) in (None, MISSING):
        yield parts.data_set, "workers"
    elif configuration.has(ROLLOUT):
        yield (lambda follower: follower.made(ROLLOUT)), "workers"


def _later(
    tree: ast.Module,
    module: str,
    verl: SourceTree,
    estimators: Callable[..., Estimator | None],
    configuration: Configuration,
) -> Iterator[_Followed]:
    """Yield what is called once the configuration has been validated."""
    if not trains(configuration):
        return
    trainers = _trainers(tree, module, verl, configuration)
    yield from _of_trainers(trainers, configuration, beside=not module.startswith("verl.trainer."))
    if configuration.get(_CUSTOM) in (None, MISSING) and configuration.get(_OWN_LOOPS) in (None, MISSING):
        has_rollouts = configuration.has(ROLLOUT)
        yield partial(parts.template_arguments, verl=verl), "first batch" if has_rollouts else "workers"
    for section, optim in _engines(configuration):
        for method, phase in _ENGINE_METHODS if optim else _ENGINE_METHODS[:3]:
            yield partial(parts.engine, section=section, optim=optim, method=method), phase
    for section in ("optim", f"{ACTOR}.optim", "critic.optim"):
        is_used = section != "critic.optim" or has_critic(configuration)
        is_changed = any(_is_unusual_argument(word, section) for word in configuration.overrides)
        if is_used and is_changed and isinstance(configuration.get(section), dict):
            yield partial(parts.optimizer, section=section), "workers"
    if configuration.has(ROLLOUT):
        yield from _of_algorithms(trainers, verl, estimators, configuration)
        if configuration.get(f"{ROLLOUT}.name") == "vllm":
            yield from _of_vllm(verl, configuration)


def _of_trainers(trainers: list[str], configuration: Configuration, *, beside: bool) -> Iterator[_Followed]:
    """Yield what the trainer calls, where a setting is one that it may not expect.

    Verl's defaults are not made for trainers `beside` its own.
    """
    if not beside and not any(map(_is_unusual, configuration.overrides, repeat(configuration))):
        return
    for name in trainers:
        for method, phase in _METHODS:
            yield partial(parts.method, name=name, method=method, fields=_CONFIG), phase
    for name, method, fields, phase in _PARTS if configuration.has(ROLLOUT) else _TUNING:
        yield partial(parts.method, name=name, method=method, fields=fields), phase
    if not beside and configuration.get(f"{SAMPLER}.custom_sampler.path") in (None, MISSING):
        yield parts.replay_buffer, "workers"
    if not _fetches_single_prompts(configuration):
        for name in trainers:
            yield partial(parts.method, name=name, method="_next_train_batch", fields=_CONFIG), "first batch"


def _of_algorithms(
    trainers: list[str],
    verl: SourceTree,
    estimators: Callable[..., Estimator | None],
    configuration: Configuration,
) -> Iterator[_Followed]:
    """Yield the penalties, the reward model and manager, the estimator and the loss that the job names."""
    for switch, key in (
        (f"{ACTOR}.use_kl_loss", f"{ACTOR}.kl_loss_type"),
        (_IN_REWARD, "algorithm.kl_penalty"),
    ):
        if configuration.get(switch) is True and configuration.override_of(key) is not None:
            yield partial(parts.function, name="kl_penalty", argument="kl_penalty", key=key), "first update"
    if configuration.get(_IN_REWARD) is True:
        yield (
            partial(parts.function, name="get_kl_controller", argument="kl_ctrl", key="algorithm.kl_ctrl"),
            "workers",
        )
        yield parts.kl_controller, "first batch"
    yield from _of_batches(trainers, configuration)
    if configuration.get(f"{JUDGE}.enable") is True:
        yield partial(parts.reward_model, configuration=configuration), "workers"
    name = configuration.get(ESTIMATOR)
    if isinstance(name, str) and (estimator := estimators(name, *trainers)):
        yield partial(parts.estimator, estimator=estimator, values=has_critic(configuration)), "first batch"
    loss = configuration.get(f"{ACTOR}.policy_loss.loss_mode")
    yield partial(parts.registered, verl=verl, decorator="register_policy_loss", name=loss), "first update"
    has_arguments = any("reward_kwargs." in word.key for word in configuration.overrides)
    if has_arguments or any(map(configuration.override_of, MANAGERS)):
        yield partial(parts.reward_manager, verl=verl, configuration=configuration), "first batch"


def _of_vllm(verl: SourceTree, configuration: Configuration) -> Iterator[_Followed]:
    """Yield what vLLM compares: parameters of sampling, and the numbers of its scheduler."""
    yield partial(parts.sampling, section=ROLLOUT), "first batch"
    if validates(configuration):
        yield partial(parts.sampling, section=f"{ROLLOUT}.val_kwargs"), "first validation"
    if any(
        word.key.startswith(f"{ROLLOUT}.") and _is_unusual(word, configuration)
        for word in configuration.overrides
    ):
        fields = {"config": ROLLOUT}
        yield partial(parts.method, name=_SERVER, method="launch_server", fields=fields), "engine"
    if any(word.key.endswith(SCHEDULED) for word in configuration.overrides):
        yield partial(parts.scheduler, verl=verl), "engine"


def _of_batches(trainers: list[str], configuration: Configuration) -> Iterator[_Followed]:
    """Yield what verl's trainers do with the engine's log probabilities, and how workers split a batch."""
    for trainer in trainers:
        if not trainer.startswith("verl.trainer."):
            continue
        by_engine, bypassed = (
            configuration.get(f"{ROLLOUT}.calculate_log_probs"),
            configuration.get(f"{CORRECTION}.bypass_mode"),
        )
        if (
            by_engine is True
            and bypassed is False
            and any(word.key.startswith(f"{CORRECTION}.") for word in configuration.overrides)
        ):
            yield parts.rollout_correction, "first batch"
        if by_engine is False and bypassed is True and configuration.get(_OWN_LOOPS) in (None, MISSING):
            yield partial(parts.bypassed, trainer=trainer), "first batch"
        for method in (
            ("_update_actor", "_update_critic") if has_critic(configuration) else ("_update_actor",)
        ):
            yield partial(parts.mini_batches, trainer=trainer, method=method), "first update"


def _is_unusual(word: OverrideWord, configuration: Configuration) -> bool:
    """Return whether verl's code may not expect a setting.

    Such a setting is removed, null, zero, negative, in place of a section, or of another type.

    And each setting by which batches are collected.
    """
    if word.fate != "applied" or not word.key:
        return False
    value, default = word.value, configuration.default(word.key)
    if word.sign == "~" or isinstance(value, list) or word.key.startswith(_BATCHING):
        return True
    if isinstance(default, Mapping) and default:
        return not isinstance(value, Mapping)
    if value is None or isinstance(value, bool):
        return value is None is not default
    if isinstance(value, (int, float)):
        return (value <= 0 and value != default) or not isinstance(default, (int, float))
    return word.key.startswith("trainer.resume") or isinstance(default, (bool, int, float))


def _is_unusual_argument(word: OverrideWord, section: str) -> bool:
    """Return whether an optimizer may reject a setting: anything but a rate or a decay above zero."""
    name = word.key.removeprefix(f"{section}.").partition(".")[0]
    if name == word.key or name not in ("lr", "weight_decay", "betas", "override_optimizer_config"):
        return False
    return name == "override_optimizer_config" or not isinstance(word.value, (int, float)) or word.value <= 0


def _engines(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Yield the sections of FSDP engines that the job changes, and those of their optimizers.

    For a model that does not learn, the section of the optimizer is "".
    """
    roles = [("engine", "optim", "engine.strategy")]
    if configuration.has(ROLLOUT):
        roles = [(f"{ACTOR}.fsdp_config", f"{ACTOR}.optim", f"{ACTOR}.strategy")]
        if has_reference(configuration):
            roles.append(("actor_rollout_ref.ref.fsdp_config", "", "actor_rollout_ref.ref.strategy"))
        if has_critic(configuration):
            roles.append(("critic.fsdp", "critic.optim", "critic.strategy"))
    for section, optim, strategy in roles:
        changed = [word for word in configuration.overrides if word.fate == "applied"]
        prefixes = tuple(f"{name}." for name in (section, optim) if name)
        if configuration.get(strategy) in _STRATEGIES and any(
            word.key.startswith(prefixes) or word.key.endswith(_SPLIT) for word in changed
        ):
            yield section, optim


def _trainers(tree: ast.Module, module: str, verl: SourceTree, configuration: Configuration) -> list[str]:
    """Return the classes that train.

    They are registered under the job's mode, imported by the program, or its own class with a `fit`.
    """
    imported = [
        (node, alias.name) for node in walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    mode = configuration.get(_MODE)
    if any(name == "get_trainer_cls" for _, name in imported):
        if isinstance(mode, str) and configuration.get("trainer.use_v1") is not False:
            for path in sorted(verl.folder.glob("trainer/ppo/v1/trainer_*.py")):
                for part in registrations(path, "register_trainer", mode):
                    return [f"{verl.name_of(path)}.{part.name}"]
            return []
        return [_OLD_TRAINER]
    trainers = [
        f"{node.module}.{name}" for node, name in imported if name.endswith(_TRAINERS) and not node.level
    ]
    if trainers or configuration.has(ROLLOUT):
        return trainers or [_OLD_TRAINER]
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    named = (
        node.name
        for node in classes
        if any(isinstance(part, ast.FunctionDef) and part.name == "fit" for part in node.body)
    )
    return [f"{module}.{name}" for name in named][:1]


def _fetches_single_prompts(configuration: Configuration) -> bool:
    """Return whether the trainer sets `data.gen_batch_size` to 1 itself.

    It does so whatever the job sets (verl/trainer/ppo/v1/trainer_base.py).
    """
    switches = (f"{GROUPS}.enable", f"{SAMPLER}.sync_refill_failed_groups")
    is_usual = all(configuration.get(key) in (False, None, MISSING) for key in switches)
    return not is_usual or configuration.get(_MODE) not in ("sync", MISSING)
