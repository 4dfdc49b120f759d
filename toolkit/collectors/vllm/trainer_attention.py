"""Which attention the trainer requests from transformers, and whether it is installed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import KeyValue, given, launch_values, text_of
from verl_doctor.toolkit.collectors.configuration.roles import has_critic, trains
from verl_doctor.toolkit.collectors.installed.import_path import is_on_path
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.vllm.platform import VllmPlatform
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import constant_keys, parse, parsed, read, statements, walk

_KEY = "attn_implementation"
_OVERRIDES = (f"actor_rollout_ref.model.override_config.{_KEY}", f"model.override_config.{_KEY}")
_CRITIC = f"critic.model.override_config.{_KEY}"
VALUE_MODEL, VALUE_LOADER = "utils/model.py", "load_valuehead_model"
_STRATEGIES = ("actor_rollout_ref.actor.strategy", "model.strategy", "engine.strategy")
_DEFAULT_IN = ("workers/config/model.py", "workers/fsdp_workers.py")
# What transformers imports for each name (transformers/utils/import_utils.py).
_NEEDS = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
# The package with which newer transformers replaces a missing one.
_KERNELS = "kernels"
# Platforms on which transformers takes FlashAttention from these packages alone.
_NO_ATTENTION_OF_ITS_OWN = ("cuda", "cpu")
_USUAL = frozenset({"flash_attention_2", "sdpa", "eager"})
_FALLS_BACK = b"kernels-community/flash-attn"
_FALLBACK_IN = ("modeling_flash_attention_utils.py", "modeling_utils.py")


@dataclass(frozen=True)
class TrainerAttention:
    """The attention of the trained model.

    `name` is what transformers is given, `written` the key or verl's file that sets it, with its place.
    `needs` is the package for it, empty if there is none; `installed`: that package, or transformers'
    replacement for it, is installed. `known` are the names that transformers accepts, read for an unusual
    name only. `critic` is the same for the critic, None if the job trains none or it is unknown. `fixed`:
    verl's code names it, and no setting changes it.
    """

    name: str
    written: str
    by_default: bool
    needs: str
    installed: bool
    path: str = ""
    line: int = 0
    known: tuple[str, ...] = ()
    critic: TrainerAttention | None = None
    fixed: bool = False


@collector(kept=True)
def trainer_attention(
    launch: Launch,
    configuration: Configuration | Unknown,
    verl: VerlTrees,
    interpreter: Interpreter,
    platform: VllmPlatform,
) -> TrainerAttention | Unknown:
    """Read the name from the command, or else verl's default, and look for the package on the path."""
    if launch.command is None:
        return Absent("no command that starts training was found")
    if platform.name not in _NO_ATTENTION_OF_ITS_OWN:
        return Absent(f"the device is {platform.name}, to which these rules do not apply")
    if isinstance(configuration, Configuration) and not trains(configuration):
        return Absent("the job trains nothing")
    values = launch_values(launch, configuration)
    strategy = text_of(values, *_STRATEGIES)
    if strategy and "fsdp" not in strategy:
        return Absent(f"the strategy is {strategy}: transformers does not compute the attention")
    actor = _of_model(given(values, *_OVERRIDES), verl, interpreter)
    own_parts = isinstance(configuration, Configuration) and configuration.own_parts
    if own_parts and isinstance(actor, TrainerAttention) and actor.by_default:
        return Unknown("the program may load its model in a way of its own")
    if isinstance(actor, Unknown) or isinstance(configuration, Unknown) or not _trains_critic(configuration):
        return actor
    critic = _of_critic(given(values, _CRITIC), verl, interpreter)
    return actor if isinstance(critic, Unknown) else replace(actor, critic=critic)


def _of_model(
    override: KeyValue | None, verl: VerlTrees, interpreter: Interpreter
) -> TrainerAttention | Unknown:
    """Return what the command requests, or else verl's default."""
    if override is not None:
        if not override.known:
            return Unknown(f"the value of {override.key} cannot be determined from the launch script")
        return _fact(override.text, override.key, False, interpreter, override.path, override.line)
    for name, path, line in _defaults(Path(verl.imported.folder)):
        return _fact(name, str(path), True, interpreter, str(path), line)
    return Absent("verl names no attention by default")


def _of_critic(
    override: KeyValue | None, verl: VerlTrees, interpreter: Interpreter
) -> TrainerAttention | Unknown:
    """Return what verl's code names for a value model, else what the command requests, or verl's default."""
    path = Path(verl.imported.folder, VALUE_MODEL)
    tree = parsed(path)
    for name, node in fixed_attention(tree) if isinstance(tree, ast.Module) else ():
        return replace(_fact(name, str(path), True, interpreter, str(path), node.lineno), fixed=True)
    return _of_model(override, verl, interpreter)


def fixed_attention(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that verl's loader of value models passes as a constant.

    The constant comes before the model's configuration.
    """
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == VALUE_LOADER:
            for node in walk(function):
                match node:
                    case ast.keyword(arg="attn_implementation", value=ast.Constant(value=str(name)) as value):
                        yield name, value


def _trains_critic(configuration: Configuration) -> bool:
    """Return whether verl builds an FSDP critic whose model uses the actor's settings."""
    strategy = configuration.get("critic.strategy")
    fsdp = isinstance(strategy, str) and "fsdp" in strategy
    return has_critic(configuration) and fsdp and configuration.has("critic.model.hf_config_path")


def _fact(
    name: str, written: str, by_default: bool, interpreter: Interpreter, path: str, line: int
) -> TrainerAttention:
    needs = _NEEDS.get(name, "")
    installed = not needs or is_on_path(needs, interpreter.sys_path) or _has_substitute(interpreter)
    known = (
        () if name in _USUAL or "/" in name else tuple(_known(interpreter))
    )  # a slash: a kernel of the hub
    return TrainerAttention(name, written, by_default, needs, installed, path, line, known)


def _known(interpreter: Interpreter) -> Iterator[str]:
    """Yield the keys of `AttentionInterface._global_mapping`, and the name that needs no entry there."""
    for path in (Path(entry, "transformers", "modeling_utils.py") for entry in interpreter.sys_path):
        tree = parsed(path)
        for node in statements(tree) if isinstance(tree, ast.Module) else ():
            match node:
                case ast.Assign(targets=[ast.Name(id="_global_mapping")], value=ast.Dict() as table):
                    yield from ("eager", *(constant_keys(table) or ()))
                    return


def _has_substitute(interpreter: Interpreter) -> bool:
    """Return whether transformers would use a hub kernel instead: it supports that and has its package."""
    if not is_on_path(_KERNELS, interpreter.sys_path):
        return False
    files = [Path(entry, "transformers", name) for entry in interpreter.sys_path for name in _FALLBACK_IN]
    contents = [read(file) for file in files]
    return any(isinstance(content, bytes) and _FALLS_BACK in content for content in contents)


def _defaults(folder: Path) -> Iterator[tuple[str, Path, int]]:
    """Yield the second argument of `.get("attn_implementation", ...)` where verl loads the actor."""
    for name in _DEFAULT_IN:
        path = folder / name
        content = read(path)
        tree = parse(content, path) if isinstance(content, bytes) and _KEY.encode() in content else None
        for node in walk(tree) if isinstance(tree, ast.Module) else ():
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="get"),
                    args=[ast.Constant(value=key), ast.Constant(value=str(default))],
                ) if key == _KEY:
                    yield default, path, node.lineno
