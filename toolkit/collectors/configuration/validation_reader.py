"""Follows a configuration through verl: `validate_config`, the classes of sections, the trainer, its loss and its optimizer.

vLLM's sampling parameters and torch's optimizer are followed with the arguments that verl passes to them.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from verl_doctor.toolkit.collectors.configuration.advantage import Estimator, read_estimator
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, OverrideWord
from verl_doctor.toolkit.collectors.configuration.engine_server import SERVER, handed_arguments
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.configuration.nearest_accepted import Judge, with_nearest
from verl_doctor.toolkit.collectors.configuration.registries import ESTIMATOR
from verl_doctor.toolkit.collectors.configuration.registry_reader import registrations
from verl_doctor.toolkit.collectors.configuration.roles import has_critic, has_reference, trains
from verl_doctor.toolkit.collectors.configuration.validation import Raised, Validation
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.definitions import ClassNode, Definitions, FunctionNode, Modules
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.follower import Follower
from verl_doctor.toolkit.sources.python.refusals.refused import NotFollowedError, Refusal, RefusedError
from verl_doctor.toolkit.sources.python.refusals.values import Made, Section
from verl_doctor.toolkit.sources.python.source import SourceTree, dotted, parsed, walk

_VALIDATE = "validate_config"
_MAKES = "omega_conf_to_dataclass"
_ROLLOUT = "actor_rollout_ref.rollout"
_DATASET = "verl.utils.dataset.multiturn_sft_dataset.MultiTurnSFTDataset"
_CUSTOM = "data.custom_cls.path"
_WHOLE = frozenset({"config", "self.config"})  # the names of the whole configuration in programs
_ACTOR = "actor_rollout_ref.actor"
_MODE = "trainer.v1.trainer_mode"
_IN_REWARD = "algorithm.use_kl_in_reward"
_VALUES, _CRITIC = (
    "values",
    "critic.enable",
)  # the estimates of a critic, and the switch without which there is none
_ALGORITHMS = "verl.trainer.ppo.core_algos"
_ALGORITHMS_FILE = "trainer/ppo/core_algos.py"
_TRAINERS = ("Trainer", "Rollouter")
_OLD_TRAINER = "verl.trainer.ppo.ray_trainer.RayPPOTrainer"
_JUDGE = "reward.reward_model"
_JUDGES = "verl.experimental.reward_loop.reward_model.RewardModelManager"
_SAMPLING = "vllm.sampling_params.SamplingParams"
_SAMPLED = ("temperature", "top_p", "top_k")
_BUFFER = "verl.trainer.ppo.v1.replay_buffer.ReplayBuffer"
_SAMPLER = "trainer.v1.sampler"
_GROUPS = "algorithm.filter_groups"
_SCHEDULER = "vllm.config.scheduler.SchedulerConfig"
_SCHEDULED = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
_ENGINE = "verl.workers.engine.fsdp.transformer_impl.FSDPEngine"
_STRATEGIES = ("fsdp", "fsdp2")
_SPLIT = "ulysses_sequence_parallel_size"  # of a role, which its engine takes over
_ENGINE_METHODS: tuple[tuple[str, Phase], ...] = (
    ("__init__", "workers"),
    ("_build_module", "workers"),
    ("_build_fsdp_module", "workers"),
    ("_build_lr_scheduler", "workers"),
    ("optimizer_step", "first update"),
)
# Whose arguments verl takes from the configuration, and the library that checks them.
_LIBRARIES = (
    ("torch.optim", "torch/optim"),
    ("torch.utils.data", "torch/utils/data"),
    ("torchdata", "torchdata"),
)
_MODEL = "actor_rollout_ref.model"
_MANAGERS = ("reward.reward_manager.name", "reward_model.reward_manager")
# What the trainer collects its batches by: only certain values of these fit each other.
_BATCHING = ("trainer.v1.", "algorithm.filter_groups.", "data.gen_batch_size")
_WORLD = ("torch.distributed.get_world_size", "dist.get_world_size")
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
    ("verl.workers.rollout.llm_server.LLMServerManager", "_initialize_llm_servers", {"config": "", "rollout_config": _ROLLOUT}, "engine"),
    ("verl.experimental.agent_loop.agent_loop.AgentLoopManager", "_init_agent_loop_workers", {"config": "", "rollout_config": _ROLLOUT}, "first batch"),
    ("verl.experimental.agent_loop.agent_loop.AgentLoopWorker", "__init__", {"config": ""}, "first batch"),
    ("verl.experimental.reward_loop.reward_loop.RewardLoopWorker", "__init__", {"config": ""}, "first batch"),
    ("verl.experimental.reward_loop.reward_loop.RewardLoopManager", "_init_reward_loop_workers", {"config": ""}, "first batch"),
)  # fmt: skip
_TUNING: tuple[tuple[str, str, Mapping[str, str], Phase], ...] = (
    ("verl.utils.checkpoint.checkpoint_handler.CheckpointHandler", "_determine_resume_path", {"resume_mode": "trainer.resume_mode", "resume_from_path": "trainer.resume_from_path"}, "workers"),
)  # fmt: skip
_BUILDER = "verl.workers.config.optimizer.build_optimizer"
# The class of a value about which no more is known.
_ANYTHING = ClassNode(ast.ClassDef("object", [], [], [], []), "")
Step = tuple[Callable[[Follower], object], Phase]


class _Step(NamedTuple):
    """Code to follow, and where the job is then. If it is `needed`, what it raises stops any job."""

    follow: Callable[[Follower], object]
    phase: Phase
    needed: bool


def read_validation(
    configuration: Configuration,
    trees: VerlTrees,
    vllm: VllmTree | Unknown,
    interpreter: Interpreter | Unknown,
    processes: JobProcesses | Unknown,
) -> Validation:
    """Follow the program's file: its calls, the classes it instantiates, then what the job calls later."""
    verl = SourceTree(Path(trees.imported.folder), trees.imported.module, "verl")
    sources = [verl]
    if not isinstance(vllm, Unknown):
        sources.append(SourceTree(Path(vllm.tree.folder), "vllm"))
    if not isinstance(interpreter, Unknown):
        for library, inner in _LIBRARIES:
            folders = (Path(entry, inner) for entry in interpreter.sys_path)
            sources += [SourceTree(folder, library) for folder in folders if os.path.isdir(folder)][:1]
    program = Path(configuration.program)
    module = verl.name_of(program)
    tree = parsed(program)
    if module is None or tree is None:
        return Validation()
    run = _Run(tree, module, verl, sources, processes, configuration)
    refusals: dict[Raised, Judge] = {}
    for step in run.steps(configuration):
        raised = run.raised(configuration, step)
        if raised is not None:
            raised = replace(raised, library=_library(raised, sources[1:]))
        if raised is not None and raised not in refusals:
            refusals[raised] = partial(run.raised, step=step)
    known = frozenset(raised.read_from for raised in refusals)
    nearest = {
        raised: with_nearest(raised, configuration, judge, lambda changed: run.places(changed) <= known)
        for raised, judge in refusals.items()
    }
    return Validation(tuple(nearest.values()))


@dataclass(frozen=True)
class _Run:
    """The program with its sources, through which configurations are followed: the job's own, and changed ones."""

    tree: ast.Module
    module: str
    verl: SourceTree
    sources: Sequence[SourceTree]
    processes: JobProcesses | Unknown
    configuration: Configuration
    modules: Modules = field(default_factory=dict)

    def steps(self, configuration: Configuration) -> Iterator[_Step]:
        """Yield the steps of the program itself, then what is called once the configuration has been validated."""
        for follow, phase in _steps(self.tree, self.module, configuration):
            yield _Step(follow, phase, needed=True)
        for follow, phase in _later(self.tree, self.module, self.verl, self.estimator, configuration):
            yield _Step(follow, phase, needed=False)

    def raised(self, changed: Configuration, step: _Step) -> Raised | None:
        """Return what a step raises with a configuration."""
        world = _world(changed, self.processes)
        follower = Follower(
            self.sources,
            changed.get,
            loops=not step.needed,
            modules=self.modules,
            calls=dict.fromkeys(_WORLD, world) if world else {},
            removed=self.removed,
        )
        return _raised(follower, step.follow, step.phase, needed=step.needed)

    def places(self, changed: Configuration) -> frozenset[str]:
        """Return every place that refuses a configuration."""
        every = (self.raised(changed, step) for step in self.steps(changed))
        return frozenset(raised.read_from for raised in every if raised is not None)

    @cached_property
    def removed(self) -> frozenset[str]:
        """The keys that the job removes."""
        return frozenset(
            word.key for word in self.configuration.overrides if word.sign == "~" and word.fate == "applied"
        )

    @cached_property
    def estimator(self) -> Callable[..., Estimator | None]:
        """The reader of an estimator by its name, as these trainers call it. It reads each once: many configurations are tried."""
        definitions = Definitions([self.verl], None, lambda *_: UNCLEAR)
        file = self.verl.folder / _ALGORITHMS_FILE
        return functools.cache(lambda name, *trainers: read_estimator(name, trainers, file, definitions))


def _library(raised: Raised, others: Iterable[SourceTree]) -> str:
    """The package that raises it, "" for verl."""
    path = Path(raised.read_from.rpartition(":")[0])
    return next((tree.name for tree in others if path.is_relative_to(tree.folder)), "")


def _raised(
    follower: Follower, step: Callable[[Follower], object], phase: Phase, *, needed: bool
) -> Raised | None:
    """What a step raises. Unless the step is `needed`, an error counts only if it depends on a setting."""
    try:
        step(follower)
    except RefusedError as refused:
        refusal = refused.refusal
        keys = tuple(key for key in refusal.keys if "." in key)
        if not keys and not needed:
            return None
        around = tuple(key for key in refusal.around if "." in key)
        return Raised(
            refusal.raised, refusal.text, refusal.read_from, refusal.condition, keys, phase, around=around
        )
    except (NotFollowedError, RecursionError):
        return None
    return None


def _steps(tree: ast.Module, module: str, configuration: Configuration) -> Iterator[Step]:
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
        yield _data_set, "workers"
    elif configuration.has(_ROLLOUT):
        yield (lambda follower: follower.made(_ROLLOUT)), "workers"


def _data_set(follower: Follower) -> None:
    owner = follower.definitions.named(_DATASET)
    if isinstance(owner, ClassNode):
        follower.constructed(owner, {"config": Section("data")})


def _later(
    tree: ast.Module,
    module: str,
    verl: SourceTree,
    estimators: Callable[..., Estimator | None],
    configuration: Configuration,
) -> Iterator[Step]:
    """What is called once the configuration has been validated. `estimators` returns an estimator by its name, as trainers call it."""
    if not trains(configuration):
        return
    trainers = _trainers(tree, module, verl, configuration)
    beside = not module.startswith("verl.trainer.")  # trainers that verl's defaults are not made for
    if beside or any(map(_is_unusual, configuration.overrides, repeat(configuration))):
        parts = [(name, method, {"config": ""}, phase) for name in trainers for method, phase in _METHODS]
        for name, method, fields, phase in [*parts, *(_PARTS if configuration.has(_ROLLOUT) else _TUNING)]:
            yield partial(_method, name=name, method=method, fields=fields), phase
        if not beside and configuration.get(f"{_SAMPLER}.custom_sampler.path") in (None, MISSING):
            yield _replay_buffer, "workers"
        if not _fetches_single_prompts(configuration):
            for name in trainers:
                yield (
                    partial(_method, name=name, method="_next_train_batch", fields={"config": ""}),
                    "first batch",
                )
    for section, optim in _engines(configuration):
        for method, phase in _ENGINE_METHODS if optim else _ENGINE_METHODS[:3]:
            yield partial(_engine, section=section, optim=optim, method=method), phase
    for section in ("optim", f"{_ACTOR}.optim", "critic.optim"):
        used = isinstance(configuration.get(section), dict) and (
            section != "critic.optim" or has_critic(configuration)
        )
        if used and any(_is_unusual_argument(word, section) for word in configuration.overrides):
            yield partial(_optimizer, section=section), "workers"
    if not configuration.has(_ROLLOUT):
        return
    for switch, key in (
        (f"{_ACTOR}.use_kl_loss", f"{_ACTOR}.kl_loss_type"),
        (_IN_REWARD, "algorithm.kl_penalty"),
    ):
        if configuration.get(switch) is True and configuration.override_of(key) is not None:
            yield partial(_function, name="kl_penalty", argument="kl_penalty", key=key), "first update"
    if configuration.get(_IN_REWARD) is True:
        yield partial(_function, name="get_kl_controller", argument="kl_ctrl", key="algorithm.kl_ctrl"), "workers"  # fmt: skip
    if configuration.get(f"{_JUDGE}.enable") is True:
        yield partial(_reward_model, configuration=configuration), "workers"
    name = configuration.get(ESTIMATOR)
    if isinstance(name, str) and (estimator := estimators(name, *trainers)):
        yield partial(_estimator, estimator=estimator, values=has_critic(configuration)), "first batch"
    loss = configuration.get(f"{_ACTOR}.policy_loss.loss_mode")
    yield (lambda follower: _registered(follower, verl, "register_policy_loss", loss)), "first update"
    if any(map(configuration.override_of, _MANAGERS)) or any(
        "reward_kwargs." in word.key for word in configuration.overrides
    ):
        yield partial(_reward_manager, verl=verl, configuration=configuration), "first batch"
    if configuration.get(f"{_ROLLOUT}.name") == "vllm":
        yield (lambda follower: _sampling(follower, _ROLLOUT)), "first batch"
        if _validates(configuration):
            yield (lambda follower: _sampling(follower, f"{_ROLLOUT}.val_kwargs")), "first validation"
        if any(word.key.endswith(_SCHEDULED) for word in configuration.overrides):
            yield (lambda follower: _scheduler(follower, verl)), "engine"


def _world(configuration: Configuration, processes: JobProcesses | Unknown) -> int:
    """Return the number of the trainer's processes; 0 if it is unknown."""
    counts: list[Any] = []
    if configuration.has(_ROLLOUT):
        counts = [configuration.get("trainer.nnodes"), configuration.get("trainer.n_gpus_per_node")]
    elif isinstance(processes, JobProcesses) and processes.launcher in ("torchrun", "torch.distributed.run"):
        options = processes.options
        given = [options.get("nnodes") or "1", options.get("nproc_per_node") or ""]
        counts = [int(text) if text.isdigit() else None for text in given if not processes.undetermined]
    if not counts or any(type(count) is not int or count < 1 for count in counts):
        return 0
    return math.prod(counts)


def _is_unusual(word: OverrideWord, configuration: Configuration) -> bool:
    """Return whether verl's code may not expect a setting: removed, null, zero, negative, in place of a section, or of another type.

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


def _validates(configuration: Configuration) -> bool:
    every = configuration.number("trainer.test_freq")
    return configuration.get("trainer.val_before_train") is True or (every is not None and every > 0)


def _engines(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Yield the sections of FSDP engines that the job changes, and those of their optimizers, "" for a model that does not learn."""
    roles = [("engine", "optim", "engine.strategy")]
    if configuration.has(_ROLLOUT):
        roles = [(f"{_ACTOR}.fsdp_config", f"{_ACTOR}.optim", f"{_ACTOR}.strategy")]
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


def _engine(follower: Follower, section: str, optim: str, method: str) -> None:
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


def _trainers(tree: ast.Module, module: str, verl: SourceTree, configuration: Configuration) -> list[str]:
    """Return the classes that train: registered under the job's mode, imported by the program, or its own class with a `fit`."""
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
    if trainers or configuration.has(_ROLLOUT):
        return trainers or [_OLD_TRAINER]
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    named = (node.name for node in classes if any(isinstance(part, ast.FunctionDef) and part.name == "fit" for part in node.body))  # fmt: skip
    return [f"{module}.{name}" for name in named][:1]


def _method(follower: Follower, name: str, method: str, fields: Mapping[str, str]) -> None:
    """Follow a method of one of verl's classes, with configuration sections in its fields."""
    owner = follower.definitions.named(name) if name else None
    if isinstance(owner, ClassNode):
        sections = {
            field: follower.settings.value_at(key) if key else Section("") for field, key in fields.items()
        }
        follower.method_of(Made(owner, dict(sections)), method, sections)


def _function(follower: Follower, name: str, argument: str, key: str) -> None:
    """Follow a function of verl's algorithms with a single known argument."""
    function = follower.definitions.named(f"{_ALGORITHMS}.{name}")
    if isinstance(function, FunctionNode):
        follower.call(function, (), {argument: follower.settings.value_at(key)}, {argument: (key,)})


def _registered(follower: Follower, verl: SourceTree, decorator: str, name: object) -> None:
    """Follow the loss function registered under the job's name, with the actor's configuration."""
    config = follower.made(_ACTOR)
    for node in registrations(verl.folder / _ALGORITHMS_FILE, decorator, name):
        if isinstance(node, ast.FunctionDef):
            follower.call(FunctionNode(node, _ALGORITHMS), (), {"config": config})


def _estimator(follower: Follower, estimator: Estimator, *, values: bool) -> None:
    """Follow the estimator with the arguments that it gets. No other one means the same. `values`: a critic estimates them."""
    if estimator.refusal is not None:
        raise RefusedError(estimator.refusal)
    if not values and _VALUES in estimator.required and follower.settings.value_at(_CRITIC) is False:
        place = follower.definitions.place(_ALGORITHMS, estimator.function.lineno)
        raise RefusedError(Refusal("KeyError", f"'{_VALUES}'", place, "", (_CRITIC, ESTIMATOR)))
    given = dict.fromkeys(estimator.given, Made(_ANYTHING, {}))
    follower.call(FunctionNode(estimator.function, _ALGORITHMS), (), given | {"config": Section("algorithm")})


def _reward_manager(follower: Follower, verl: SourceTree, configuration: Configuration) -> None:
    """Follow the constructor of the reward manager that the job names, with the configuration or, in older releases, its `reward_kwargs`."""
    names = (configuration.get(key) for key in _MANAGERS)
    name = next((name for name in names if isinstance(name, str)), None)
    given = configuration.get("reward_model.reward_kwargs")
    named: dict[str, Any] = {key: follower.settings.value_at(f"reward_model.reward_kwargs.{key}") for key in given} if isinstance(given, Mapping) else {}  # fmt: skip
    for folder in ("experimental/reward_loop/reward_manager", "workers/reward_manager"):
        for path in sorted((verl.folder / folder).glob("*.py")):
            for node in registrations(path, "register", name):
                if isinstance(node, ast.ClassDef):
                    owner = ClassNode(node, verl.name_of(path) or "")
                    follower.constructed(owner, {"config": Section(""), **named})


def _reward_model(follower: Follower, configuration: Configuration) -> None:
    """Follow what starts the engines of the reward model, on the GPUs of its own pool or on those of the trainer."""
    section = _JUDGE if configuration.get(f"{_JUDGE}.enable_resource_pool") is True else "trainer"
    counts = [configuration.number(f"{section}.{name}") for name in ("nnodes", "n_gpus_per_node")]
    world = math.prod(int(count) for count in counts if count) if all(counts) else UNCLEAR
    owner = follower.definitions.named(_JUDGES)
    if isinstance(owner, ClassNode):
        keys = {"world_size": f"{section}.n_gpus_per_node"}
        fields = {"config": Section(_JUDGE), "resource_pool": Made(_ANYTHING, {"world_size": world}, keys)}
        follower.method_of(Made(owner, fields), "_initialize_llm_servers", {})


def _fetches_single_prompts(configuration: Configuration) -> bool:
    """Return whether the trainer sets `data.gen_batch_size` to 1 itself, whatever the job sets (verl/trainer/ppo/v1/trainer_base.py)."""
    switches = (f"{_GROUPS}.enable", f"{_SAMPLER}.sync_refill_failed_groups")
    is_usual = all(configuration.get(key) in (False, None, MISSING) for key in switches)
    return not is_usual or configuration.get(_MODE) not in ("sync", MISSING)


def _replay_buffer(follower: Follower) -> None:
    """Follow verl's own buffer of samples, with the settings that its trainer passes on."""
    owner = follower.definitions.named(_BUFFER)
    if not isinstance(owner, ClassNode):
        return
    look = follower.settings.value_at
    keys = {
        name: f"{_SAMPLER}.{name}" for name in ("max_off_policy_threshold", "max_off_policy_strategy")
    } | {"max_inflight_gen_batches": f"{_GROUPS}.max_inflight_gen_batches"}
    known = {name: value for name, key in keys.items() if (value := look(key)) is not MISSING}
    metric = look(f"{_GROUPS}.metric") if look(f"{_GROUPS}.enable") is True else None
    from_keys: dict[str | int, tuple[str, ...]] = {name: (keys[name],) for name in known}
    follower.constructed(owner, {**known, "filter_groups_metric": metric, "refill_fn": UNCLEAR}, from_keys)


def _sampling(follower: Follower, section: str) -> None:
    """Follow vLLM's check of the parameters that agent loops pass on."""
    owner = follower.definitions.named(_SAMPLING)
    if not isinstance(owner, ClassNode):
        return
    values = {name: follower.settings.value_at(f"{section}.{name}") for name in _SAMPLED}
    known = {name: value for name, value in values.items() if isinstance(value, (int, float))}
    follower.checked(owner, known, {name: f"{section}.{name}" for name in known}, "_verify_args")


def _scheduler(follower: Follower, verl: SourceTree) -> None:
    """Follow vLLM's comparison of the numbers that its scheduler gets, from the settings that verl's server passes on.

    Without chunked prefill verl raises the number of tokens itself, or fails to; that is not followed here.
    """
    owner = follower.definitions.named(_SCHEDULER)
    if (
        not isinstance(owner, ClassNode)
        or follower.settings.value_at(f"{_ROLLOUT}.enable_chunked_prefill") is False
    ):
        return
    keys = {name: f"{_ROLLOUT}.{key}" for name, key in handed_arguments(verl.folder / SERVER)}
    more = follower.settings.value_at(f"{_ROLLOUT}.engine_kwargs.vllm")
    if isinstance(more, Section):
        keys |= {name: f"{more.key}.{name}" for name in follower.settings.names_in(more)}
    keys = {name: key for name, key in keys.items() if name in _SCHEDULED}
    values = {name: follower.settings.value_at(key) for name, key in keys.items()}
    known = {name: value for name, value in values.items() if type(value) is int}
    length = {"max_model_len": known.pop("max_model_len", UNCLEAR)}
    fields = {**length, **known, "chunked_prefill_enabled": True}
    for method in ("verify_max_model_len", "_verify_args"):
        follower.checked(owner, fields, {name: keys[name] for name in known}, method, length)


def _optimizer(follower: Follower, section: str) -> None:
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
