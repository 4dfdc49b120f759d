"""The modules of verl with which each path of a job begins."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from verl_doctor.toolkit.sources.python.source import ModuleFile, SourceTree, text_of, walk
from verl_doctor.toolkit.sources.python.summary import absolute

TRAINER, SYNC, ASYNC = "trainer", "sync rollout", "async rollout"
SGLANG_SYNC, SGLANG_ASYNC = "sync rollout with SGLang", "async rollout with SGLang"
_REGISTRY = ("workers.rollout.base", "_ROLLOUT_REGISTRY")
_MAIN = "trainer.main_ppo"
# verl's own default (trainer/config/actor/dp_actor.yaml in every release since 0.5).
_DEFAULT_STRATEGY = "fsdp"


class Backend(NamedTuple):
    """Where verl keeps a rollout, below its top package, and the names of its paths.

    `rollout` is what a verl without a registry (through 0.5) imports. There a worker also imports `sharding`
    inside a function, in every run with this rollout and FSDP. `classes` are the classes it creates, by mode.
    """

    rollout: str
    server: str
    sharding: str
    sync_path: str
    async_path: str
    classes: Mapping[str, str]


BACKENDS = {
    "vllm": Backend(
        "workers.rollout.vllm_rollout",
        "workers.rollout.vllm_rollout.vllm_async_server",
        "workers.sharding_manager.fsdp_vllm",
        SYNC,
        ASYNC,
        {"sync": "vLLMRollout", "async": "vLLMAsyncRollout"},
    ),
    "sglang": Backend(
        "workers.rollout.sglang_rollout",
        "workers.rollout.sglang_rollout.async_sglang_server",
        "workers.sharding_manager.fsdp_sglang",
        SGLANG_SYNC,
        SGLANG_ASYNC,
        {"sync": "SGLangRollout", "async": "SGLangRollout"},
    ),
}


def registry(verl: SourceTree) -> str:
    """Return the module in which verl lists its rollouts, from 0.6 on."""
    return f"{verl.name}.{_REGISTRY[0]}"


def trainer_entries(
    verl: SourceTree, parsed: Callable[[str], ast.Module | None], strategy: str = _DEFAULT_STRATEGY
) -> dict[str, tuple[str, ...]]:
    """Return PPO training's first modules: its main module and the workers it imports for the strategy."""
    main = f"{verl.name}.{_MAIN}"
    file, tree = verl.locate(main), parsed(main)
    if file is None or tree is None:
        return {}
    return {TRAINER: _named(main, *_workers(verl, file, tree, strategy))}


def _workers(verl: SourceTree, main: ModuleFile, tree: ast.Module, strategy: str) -> Iterator[str]:
    """Yield the modules imported below `if strategy in {"fsdp", "fsdp2"}:` in a main module's functions."""
    for node in walk(tree):
        if isinstance(node, ast.If) and f"'{strategy}'" in text_of(node.test):
            for statement in node.body:
                if isinstance(statement, ast.ImportFrom):
                    yield verl.own_name(absolute(statement, main.name.rpartition(".")[0])) or ""


def rollout_entries(
    verl: SourceTree,
    parsed: Callable[[str], ast.Module | None],
    is_imported: Callable[[str], bool],
    library: str,
    strategy: str = _DEFAULT_STRATEGY,
) -> dict[str, tuple[str, ...]]:
    """Return the modules with which each path of a rollout library begins, with actors of this strategy.

    Paths that this verl does not have are left out. A missing module still begins a path if another one
    registers or imports it.
    """

    def known(name: str) -> bool:
        return verl.locate(name) is not None or is_imported(name)

    backend = BACKENDS[library]
    rollout, server, sharding = (
        f"{verl.name}.{name}" for name in (backend.rollout, backend.server, _of_strategy(backend, strategy))
    )
    registered = _registered(verl, parsed(registry(verl)), library)
    also: tuple[str, ...] = ()
    if not registered and known(rollout):
        registered = {mode: (rollout, name) for mode, name in backend.classes.items()}
        also = (sharding,) if verl.locate(sharding) is not None else ()
    found = {}
    if "sync" in registered:
        found[backend.sync_path] = _named(*_class_at(verl, parsed, *registered["sync"]), *also)
    if "async" in registered and known(server):
        found[backend.async_path] = _named(*_class_at(verl, parsed, *registered["async"]), server, *also)
    return found


def _of_strategy(backend: Backend, strategy: str) -> str:
    """Return the module that moves weights from actors of a strategy to the rollout."""
    return backend.sharding.replace("fsdp_", "megatron_") if strategy == "megatron" else backend.sharding


def _class_at(
    verl: SourceTree, parsed: Callable[[str], ast.Module | None], module: str, name: str
) -> Iterator[str]:
    """A module, followed by "module:Class" if it imports the class from another module of its package."""
    yield module
    file, tree = verl.locate(module), parsed(module)
    for node in tree.body if tree is not None and file is not None and file.kind == "package" else ():
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            yield f"{verl.own_name(absolute(node, module)) or module}:{name}"


def _registered(verl: SourceTree, tree: ast.Module | None, library: str) -> dict[str, tuple[str, str]]:
    """Read `_ROLLOUT_REGISTRY = {("vllm", "sync"): "verl.workers...Class"}`: module and class by mode."""
    found = {}
    for node in tree.body if tree is not None else []:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as table)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() as table)
            ) if name == _REGISTRY[1]:
                for key, value in zip(table.keys, table.values, strict=True):
                    match key, value:
                        case (
                            ast.Tuple(elts=[ast.Constant(value=given), ast.Constant(value=str(mode))]),
                            ast.Constant(value=str(where)),
                        ) if given == library:
                            module, _, name = where.rpartition(".")
                            found[mode] = (verl.own_name(module) or "", name)
    return found


def _named(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, names)))
