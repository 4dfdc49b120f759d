"""Reads a verl tree's registries: decorators, dictionaries, and constants that a setting is compared with."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.registries import (
    AGENT_LOOP,
    CONTENTS,
    ESTIMATOR,
    LOGGER,
    LOSS,
    METRIC,
    MODE,
    OLD_REWARD_MANAGER,
    OPTIMIZERS,
    QUANTIZATION,
    REJECTION,
    RESUME,
    REWARD_MANAGER,
    ROLLOUT,
    STRATEGY,
    TOOL_FORMAT,
    TRAINER,
    TRANSPORT,
    WEIGHTS,
    Registry,
    VerlRegistries,
)
from verl_doctor.toolkit.collectors.configuration.roles import EXTERNAL
from verl_doctor.toolkit.collectors.installed.entry_points import distributions_with
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.source import (
    constant_keys,
    dotted,
    parse,
    read,
    statements,
    walk,
)

_ALGORITHMS = "trainer/ppo/core_algos.py"
_ROLLOUTS = "workers/rollout/base.py"
_CORRECTION = "trainer/ppo/rollout_corr_helper.py"
_WORKERS = ("workers/fsdp_workers.py", "workers/megatron_workers.py")
_NONE = object()
_QAT = "actor_rollout_ref.actor.qat.enable"
_PLUGINS = "verl.plugins"  # the group of entry points
_MODULES = "VERL_USE_EXTERNAL_MODULES"
# The keys of files that the job loads and that may register names.
_LOADED = ("reward.custom_reward_function.path", "custom_reward_function.path", "data.custom_cls.path")
_REWARD_MODELS = ("reward.reward_model.enable", "reward_model.enable")
_METRIC = "FILTER_GROUPS_REWARD_METRIC"
_SOURCES = ("reward.reward_manager.source", "reward_model.reward_loop_source")
# Words by which a module that registers further names for a setting is recognised.
_REGISTERED_BY = {
    **dict.fromkeys(
        (ROLLOUT, MODE), re.compile(rb"ROLLOUT_REGISTRY|RolloutReplicaRegistry|register_rollout")
    ),
    STRATEGY: re.compile(rb"EngineRegistry"),
    ESTIMATOR: re.compile(rb"register_adv_est|ADV_ESTIMATOR_REGISTRY"),
    LOSS: re.compile(rb"register_policy_loss|POLICY_LOSS_REGISTRY"),
    **dict.fromkeys((AGENT_LOOP, TOOL_FORMAT), re.compile(rb"agent_loop|ToolParser")),
    TRAINER: re.compile(rb"register_trainer"),
    TRANSPORT: re.compile(rb"CheckpointEngineRegistry"),
    **dict.fromkeys((REWARD_MANAGER, OLD_REWARD_MANAGER), re.compile(rb"reward_manager|reward_loop")),
}
_ANY = (
    b"ROLLOUT_REGISTRY EngineRegistry register_adv_est register_policy_loss CheckpointEngineRegistry "
    b"agent_loop register_trainer reward_manager"
)
_REGISTRATION = re.compile(rb"regist", re.IGNORECASE)


def read_registries(
    configuration: Configuration,
    folder: str,
    machine: Machine,
    interpreter: Interpreter | Unknown,
    launch: Launch | Unknown,
) -> VerlRegistries:
    """Return every registry of the tree in `folder` that can be enumerated."""
    tree = Path(folder)
    found: dict[str, Registry | None] = {
        ROLLOUT: _rollouts(tree),
        MODE: _modes(tree, configuration.get(ROLLOUT)),
        STRATEGY: _strategies(tree),
        ESTIMATOR: _decorated([tree / _ALGORITHMS], "register_adv_est"),
        LOSS: _decorated([tree / _ALGORITHMS], "register_policy_loss"),
        AGENT_LOOP: _decorated(sorted(tree.glob("experimental/agent_loop/*agent_loop.py")), "register"),
        LOGGER: _trackers(tree),
        TOOL_FORMAT: _tool_formats(tree, configuration),
        TRAINER: _decorated(sorted(tree.glob("trainer/ppo/v1/*.py")), "register_trainer"),
        QUANTIZATION: _quantizations(tree, configuration),
        TRANSPORT: _transports(tree, configuration),
        RESUME: _resume_modes(tree, configuration),
        WEIGHTS: _corrections(tree, configuration, "valid_is_levels"),
        REJECTION: _corrections(tree, configuration, "SUPPORTED_ROLLOUT_RS_OPTIONS"),
        METRIC: _metrics(tree, configuration),
        **{key: _optimizers(configuration, key, interpreter) for key in OPTIMIZERS},
        **{key: _contents(tree) for key in CONTENTS if configuration.override_of(key)},
    }
    reward = REWARD_MANAGER if configuration.has(REWARD_MANAGER) else OLD_REWARD_MANAGER
    sources = {configuration.get(key) for key in _SOURCES}
    found[reward] = (
        _decorated(_reward_managers(tree), "register") if sources <= {"register", MISSING, None} else None
    )
    extended = _extended(configuration, tree, machine, interpreter, launch)
    closed: tuple[str, ...] = (
        LOGGER,
        QUANTIZATION,
        RESUME,
        WEIGHTS,
        REJECTION,
        METRIC,
        *OPTIMIZERS,
        *CONTENTS,
    )
    if extended and not isinstance(interpreter, Unknown):
        given = () if isinstance(launch, Unknown) else launch.settings
        folders = [*machine.environ.get("PYTHONPATH", "").split(os.pathsep), *interpreter.sys_path]
        named = (
            machine.environ.get(_MODULES, "") if all(setting.name != _MODULES for setting in given) else ""
        )
        names = named.split(",") if extended == _MODULES else [extended]
        texts = [_texts(name.strip().partition(".")[0], folders) for name in names]
        closed = (
            *closed,
            *(key for key, words in _REGISTERED_BY.items() if not any(map(words.search, texts))),
        )
    return VerlRegistries(
        {key: registry for key, registry in found.items() if registry is not None and configuration.has(key)},
        extended,
        closed if extended else (),
    )


def _rollouts(tree: Path) -> Registry | None:
    """Return the first half of `_ROLLOUT_REGISTRY`'s keys; before 0.6, the names that workers compare."""
    pairs = _rollout_pairs(tree)
    if pairs is not None:
        names = tuple(dict.fromkeys(name for name, _ in pairs[0]))
        return Registry(names, pairs[1])
    return _compared([tree / name for name in _WORKERS], ("rollout_name", ".rollout.name"))


def _modes(tree: Path, rollout: object) -> Registry | None:
    pairs = _rollout_pairs(tree)
    if pairs is None:
        return None
    return Registry(tuple(mode for name, mode in pairs[0] if name == rollout), pairs[1])


def _rollout_pairs(tree: Path) -> tuple[list[tuple[str, str]], str] | None:
    path = tree / _ROLLOUTS
    for node in statements(_tree(path)):
        match node:
            case ast.Assign(targets=[ast.Name(id="_ROLLOUT_REGISTRY")], value=ast.Dict(keys=keys)):
                pairs = [
                    (key.elts[0].value, key.elts[1].value)
                    for key in keys
                    if isinstance(key, ast.Tuple)
                    and len(key.elts) == 2
                    and isinstance(key.elts[0], ast.Constant)
                    and isinstance(key.elts[1], ast.Constant)
                ]
                texts = [
                    (name, mode) for name, mode in pairs if isinstance(name, str) and isinstance(mode, str)
                ]
                return (texts, f"{path}:{node.lineno}") if len(texts) == len(keys) else None
    return None


def _tool_formats(tree: Path, configuration: Configuration) -> Registry | None:
    """Return the parsers of tool calls, which only the agent loop with tools looks up."""
    if configuration.get(AGENT_LOOP) != "tool_agent":
        return None
    return _decorated([tree / "experimental/agent_loop/tool_parser.py"], "register")


def _strategies(tree: Path) -> Registry | None:
    """Return the backends of `EngineRegistry`, and the strategies that main_ppo compares.

    It compares them where it selects the workers itself.
    """
    compared = _compared([tree / "trainer/main_ppo.py", tree / "trainer/main_ppo_v0.py"], (".strategy",))
    names: list[str] = []
    place = compared.read_from if compared else ""
    for path in sorted(tree.glob("workers/engine/*/*.py")):
        source = _tree(path, b"EngineRegistry.register")
        for mark in (mark for node in statements(source) for mark in getattr(node, "decorator_list", ())):
            match mark:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="EngineRegistry"), attr="register")):
                    values = [word.value for word in mark.keywords if word.arg == "backend"] or mark.args[:1]
                    for value in values:
                        keys = (
                            constant_keys(value)
                            if not isinstance(value, ast.Constant)
                            else {str(value.value): ""}
                        )
                        if keys is None:
                            return None
                        names += keys
                        place = place or f"{path}:{mark.lineno}"
    names += compared.names if compared else ()
    return Registry(tuple(dict.fromkeys(names)), place) if names else None


def _quantizations(tree: Path, configuration: Configuration) -> Registry | None:
    """Return the names that verl's vLLM server compares with the setting; trained quantization has others."""
    if configuration.get(ROLLOUT) != "vllm" or configuration.get(_QAT) is True:
        return None
    path = tree / "workers/rollout/vllm_rollout/vllm_async_server.py"
    for node in statements(_tree(path, b"_SUPPORTED_QUANTIZATION")):
        match node:
            case ast.Assign(targets=[ast.Name(id="_SUPPORTED_QUANTIZATION")], value=value):
                names = constant_keys(value)
                return None if names is None else Registry(tuple(names), f"{path}:{node.lineno}")
    return None


def _transports(tree: Path, configuration: Configuration) -> Registry | None:
    """Return the ways in which weights get to the engine, unless a module of the job registers its own."""
    section = TRANSPORT.rpartition(".")[0]
    if configuration.get(f"{section}.custom_backend_module") not in (None, MISSING):
        return None
    return _decorated(sorted(tree.glob("checkpoint_engine/*.py")), "CheckpointEngineRegistry.register")


def _resume_modes(tree: Path, configuration: Configuration) -> Registry | None:
    """Return the modes that the job's trainer compares; an earlier one takes any other for one of them."""
    is_ppo = configuration.program.endswith("/main_ppo.py")
    path = tree / ("trainer/ppo/v1/trainer_base.py" if is_ppo else "utils/checkpoint/checkpoint_handler.py")
    return _compared([path], ("resume_mode",))


def _corrections(tree: Path, configuration: Configuration, name: str) -> Registry | None:
    """Return the names in a constant of verl's rollout correction, if the job certainly calls it."""
    section, rollout = "algorithm.rollout_correction", "actor_rollout_ref.rollout"
    if configuration.get(f"{section}.bypass_mode") is not False:
        return None
    if configuration.get(f"{rollout}.calculate_log_probs") is not True or not configuration.number(
        f"{section}.rollout_is_threshold"
    ):
        return None
    path = tree / _CORRECTION
    for node in walk(_tree(path, name.encode())):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=found)], value=value)
                | ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value)
            ) if found == name:
                names = constant_keys(value)
                return None if names is None else Registry(tuple(sorted(names)), f"{path}:{node.lineno}")
    return None


def _metrics(tree: Path, configuration: Configuration) -> Registry | None:
    """Return what verl's own rewards return beside the score, by which the replay buffer may filter groups.

    None unless the job filters, by one of the usual managers and without a reward function of its own.
    """
    switches = ("algorithm.filter_groups.enable", "trainer.use_v1")
    if not all(configuration.get(key) is True for key in switches):
        return None
    own = (configuration.get(key) for key in (*_LOADED[:2], *_SOURCES, *_REWARD_MODELS))
    managers = (configuration.get(key) for key in (REWARD_MANAGER, OLD_REWARD_MANAGER))
    if not all(value in (None, MISSING, "", False, "register") for value in own):
        return None
    if not all(name in (None, MISSING, "naive", "dapo") for name in managers):
        return None
    path = tree / "trainer/ppo/v1/replay_buffer.py"
    usual = _tree(path, _METRIC.encode())
    names: list[object] = [
        node.value.value
        for node in usual.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if [dotted(target) for target in node.targets] == [_METRIC]
    ]
    if not names:
        return None
    for file in (*sorted(tree.glob("utils/reward_score/**/*.py")), *_reward_managers(tree)):
        names += _details(_tree(file))
    return Registry(tuple(sorted({name for name in names if isinstance(name, str)})), str(path))


def _details(tree: ast.Module) -> Iterator[object]:
    """Yield the names of what stands beside a score: in one dictionary with it, or stored one by one."""
    stored: list[object] = []
    for node in walk(tree):
        match node:
            case ast.Dict(keys=keys):
                names = [key.value for key in keys if isinstance(key, ast.Constant)]
                yield from names if "score" in names else ()
            case ast.Subscript(value=ast.Name(id="reward_extra_info"), slice=ast.Constant(value=name)):
                yield name
            case ast.Subscript(slice=ast.Constant(value=name), ctx=ast.Store()):
                stored.append(name)
    yield from stored if "score" in stored else ()


def _contents(tree: Path) -> Registry | None:
    """Return the words that checkpoint managers and workers look for in lists of what is saved and loaded."""
    names: list[str] = []
    place = ""
    for path in sorted(
        [
            *tree.glob("utils/checkpoint/*.py"),
            *tree.glob("workers/*.py"),
            *tree.glob("workers/engine/**/*.py"),
        ]
    ):
        for node in walk(_tree(path, b"_contents")):
            match node:
                case ast.Compare(
                    left=ast.Constant(value=str(name)), ops=[ast.In() | ast.NotIn()], comparators=[other]
                ) if dotted(other).endswith("_contents"):
                    names.append(name)
                    place = place or f"{path}:{node.lineno}"
    return Registry(tuple(dict.fromkeys(names)), place) if "model" in names else None


def _optimizers(
    configuration: Configuration, key: str, interpreter: Interpreter | Unknown
) -> Registry | None:
    """Return names that `optimizer_impl`'s module imports, for torch only, if verl looks them up there."""
    if isinstance(interpreter, Unknown) or configuration.get(f"{key}_impl") != "torch.optim":
        return None
    for entry in interpreter.sys_path:
        path = Path(entry, "torch", "optim", "__init__.py")
        if os.path.isfile(path):
            found = [
                alias.asname or alias.name
                for node in statements(_tree(path))
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
            ]
            names = tuple(dict.fromkeys(name for name in found if name[:1].isupper()))
            return Registry(names, str(path)) if names and "*" not in found else None
    return None


def _trackers(tree: Path) -> Registry | None:
    path = tree / "utils/tracking.py"
    for node in statements(_tree(path)):
        match node:
            case ast.Assign(targets=[ast.Name(id="supported_backend")], value=value):
                names = constant_keys(value)
                return None if names is None else Registry((*names, "tracking"), f"{path}:{node.lineno}")
    return None


def _reward_managers(tree: Path) -> list[Path]:
    """Return the registries' files from which `trainer/ppo/reward.py` and the reward loop take managers."""
    content = read(tree / "trainer/ppo/reward.py")
    text = content if isinstance(content, bytes) else b""
    loops = [
        *tree.glob("experimental/reward_loop/reward_manager/*.py"),
        *tree.glob("experimental/reward/reward_loop/*.py"),
    ]
    plain = b"verl.workers.reward_manager import get_reward_manager_cls" in text
    return sorted([*loops, *(tree.glob("workers/reward_manager/*.py") if plain else ())])


def _decorated(files: Iterable[Path], decorator: str) -> Registry | None:
    """Return the first arguments of a decorator; None if there are none, or one is not a literal."""
    names: list[str] = []
    place = ""
    for path in files:
        members: dict[str, str] = {}
        for node in statements(_tree(path, decorator.encode())):
            if isinstance(node, ast.ClassDef):
                members.update(_members(node))
            for mark in getattr(node, "decorator_list", ()):
                if not isinstance(mark, ast.Call) or not f".{dotted(mark.func)}".endswith(f".{decorator}"):
                    continue
                match mark.args[:1]:
                    case [ast.Constant(value=str(name))]:
                        names.append(name)
                    case [ast.Attribute() as member] if dotted(member) in members:
                        # A member that is not registered may be handled where it is compared.
                        above = dotted(member).partition(".")[0]
                        names += [value for name, value in members.items() if name.startswith(f"{above}.")]
                    case _:
                        return None
                place = place or f"{path}:{mark.lineno}"
    return Registry(tuple(dict.fromkeys(names)), place) if place else None


def registrations(path: Path, decorator: str, name: object) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    """Yield what a module registers under a name: a literal, or a member of one of its own enumerations."""
    tree = _tree(path, decorator.encode())
    members = enumerated(tree)
    for node in tree.body:
        for mark in node.decorator_list if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else ():
            match mark:
                case ast.Call(func=function, args=[argument]) if dotted(function).endswith(decorator):
                    value = (
                        argument.value
                        if isinstance(argument, ast.Constant)
                        else members.get(dotted(argument), _NONE)
                    )
                    if value == name:
                        yield node  # type: ignore[misc]


def enumerated(tree: ast.Module) -> dict[str, str]:
    """Return the members of a module's string enumerations, as they are written there."""
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {name: value for node in classes for name, value in _members(node)}


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the members of a string enumeration, as they are written."""
    if "Enum" not in {dotted(base).rpartition(".")[2] for base in node.bases}:
        return
    for part in node.body:
        match part:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                yield f"{node.name}.{name}", value


def _compared(files: Iterable[Path], endings: tuple[str, ...]) -> Registry | None:
    """Return the constants with which names with these suffixes are compared."""
    names: list[str] = []
    place = ""
    for path in files:
        for node in walk(_tree(path)):
            match node:
                case ast.Compare(left=left, ops=[ast.Eq() | ast.In()], comparators=[other]) if (
                    f".{dotted(left)}".endswith(endings)
                ):
                    keys = {str(other.value): ""} if isinstance(other, ast.Constant) else constant_keys(other)
                    names += keys or ()  # the other names are compared with another setting
                    place = place or f"{path}:{node.lineno}"
    return Registry(tuple(dict.fromkeys(names)), place) if names else None


def _tree(path: Path, about: bytes = b"") -> ast.Module:
    """Return the syntax tree of a source; an empty one if it cannot be read, or is not `about` this."""
    content = read(path)
    tree = parse(content, path) if isinstance(content, bytes) and about in content else None
    return tree if isinstance(tree, ast.Module) else ast.Module([], [])


def _extended(
    configuration: Configuration,
    tree: Path,
    machine: Machine,
    interpreter: Interpreter | Unknown,
    launch: Launch | Unknown,
) -> str:
    """What may register names that the tree does not hold."""
    for key in EXTERNAL:
        if configuration.get(key) not in (None, MISSING, ""):
            return key
    settings = () if isinstance(launch, Unknown) else launch.settings
    if _MODULES in machine.environ or any(setting.name == _MODULES for setting in settings):
        return _MODULES
    for key in _LOADED:
        value = configuration.get(key)
        if value in (None, MISSING, ""):
            continue
        content = read(machine.cwd / machine.expanded(value)) if isinstance(value, str) else None
        if not isinstance(content, bytes) or _REGISTRATION.search(content):
            return key
    source = read(tree / "__init__.py")
    if isinstance(source, bytes) and _PLUGINS.encode() in source and not isinstance(interpreter, Unknown):
        return next(distributions_with(_PLUGINS, interpreter.sys_path), "")
    return ""


def _texts(package: str, folders: Iterable[str]) -> bytes:
    """Return all sources of a package; the words of every registry if the package is not found."""
    for entry in filter(None, folders) if package else ():
        found = [read(file) for file in sorted(Path(entry, package).rglob("*.py"))]
        if found and all(isinstance(source, bytes) for source in found):
            return b"\n".join(source for source in found if isinstance(source, bytes))
    return _ANY
