"""Definite errors in a user's own file: agent loops and tools that verl cannot use."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.own_code import FUNCTIONS, reads
from verl_doctor.toolkit.collectors.configuration.own_reward import refused_arguments
from verl_doctor.toolkit.collectors.configuration.reward_function import module_names
from verl_doctor.toolkit.collectors.configuration.tool_schema import fault
from verl_doctor.toolkit.sources.python.bound import lasting
from verl_doctor.toolkit.sources.python.source import dotted, parsed, read, walk

_LOOP = "actor_rollout_ref.rollout.agent.default_agent_loop"
_CALLBACKS, _CALLS_BACK = "trainer/ppo/checkpoint_callback.py", "trainer/ppo/v1/trainer_base.py"
_ITS_BASE = frozenset({"super().__init__"})  # verl's keeps the settings as they are


def agent_loops(configuration: Configuration, path: Path, folders: Sequence[Path]) -> Iterator[str]:
    """Check a file of agent loops: a list of entries with a name and an existing class."""
    document = yaml_of(path)
    if document is None:
        return
    if not isinstance(document, list):
        yield "is not a list of agent loops; write `- name: ...` with its `_target_:`"
        return
    for entry in document:
        if _is_filled_in(entry):
            continue
        if not isinstance(entry, dict) or "name" not in entry:
            yield "has an agent loop without a name"
        elif entry["name"] == configuration.get(_LOOP) and isinstance(target := entry.get("_target_"), str):
            yield from _class_missing(target, folders)


def tools(path: Path, folders: Sequence[Path], verl: Path | None = None) -> Iterator[str]:
    """Check a file of tools.

    Each tool needs an existing class, a type that the tree `verl` has, and a schema in the file or the class.
    """
    document = yaml_of(path)
    if document is None:
        return
    listed = document.get("tools") if isinstance(document, dict) else None
    if _is_filled_in(listed):
        return
    if not isinstance(listed, list):
        yield "has no list of tools under `tools:`"
        return
    for entry in listed:
        if _is_filled_in(entry):
            continue
        if not isinstance(entry, dict) or not isinstance(entry.get("class_name"), str):
            yield "has a tool without class_name"
            continue
        config = entry.get("config")
        if _is_filled_in(config):
            pass
        elif not isinstance(config, dict) or "type" not in config:
            yield f"has no config.type for the tool {entry['class_name']}"
        elif (
            (known := tool_types(verl))
            and isinstance(kind := config["type"], str)
            and not _is_filled_in(kind)
            and kind not in known
        ):
            yield f"has a tool of type {kind}, but this verl has only {', '.join(known)}"
        yield from _class_missing(entry["class_name"], folders)
        if entry.get("tool_schema") is None and _lacks_schema(entry["class_name"], folders):
            yield f"has no tool_schema for {entry['class_name']}, and its class has none"
        elif (
            verl is not None
            and entry.get("tool_schema") is not None
            and (wrong := fault(entry["tool_schema"], verl))
        ):
            yield f"has a tool {entry['class_name']} whose {wrong}"
        if isinstance(config, dict) and (lacking := _setting_missing(entry["class_name"], config, folders)):
            yield f"gives {entry['class_name']} no config.{lacking}, which its constructor reads"


def tool_types(verl: Path | None) -> tuple[str, ...]:
    """Return the types of tools that a tree of verl has; none if they are not found."""
    places = () if verl is None else (verl / "tools/tool_registry.py", verl / "tools/utils/tool_registry.py")
    tree = next((found for place in places if os.path.isfile(place) and (found := parsed(place))), None)
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == "ToolType":
            values = [part.value for part in node.body if isinstance(part, ast.Assign)]
            return tuple(
                value.value
                for value in values
                if isinstance(value, ast.Constant) and isinstance(value.value, str)
            )
    return ()


def _is_filled_in(value: object) -> bool:
    """Return whether OmegaConf fills in a value when the file is loaded."""
    return isinstance(value, str) and "${" in value


def function_tools(tree: ast.Module) -> Iterator[str]:
    """Check functions that are tools.

    Their schema is built by transformers from the types and a docstring with `Args:`.
    """
    seen: set[str] = set()
    for node in tree.body:
        name = _tool_name(node) if isinstance(node, FUNCTIONS) else ""
        if name and name in seen:
            yield f"has two tools named {name}, and verl registers each name once"
        seen.add(name)
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not _is_tool(node):
            continue
        text = ast.get_docstring(node) or ""
        given = [
            argument
            for argument in (*node.args.args, *node.args.kwonlyargs)
            if argument.arg not in ("self", "cls")
        ]
        bare = [argument.arg for argument in given if argument.annotation is None]
        described = text.partition("Args:")[2]
        if not text:
            yield f"has a tool {node.name} without a docstring"
        elif bare:
            yield f"has a tool {node.name} whose parameter {bare[0]} has no type"
        elif missing := [
            argument.arg
            for argument in given
            if f"{argument.arg}:" not in described and f"{argument.arg} (" not in described
        ]:
            yield f"has a tool {node.name} whose docstring does not describe {missing[0]} below Args:"
        elif node.args.vararg or node.args.kwarg:
            yield f"has a tool {node.name} with a variable number of arguments, for which no schema exists"


def _tool_name(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the name under which `function_tool` registers a function; "" if that is not certain."""
    marks = [mark for mark in node.decorator_list if _decorates(mark)]
    if len(marks) != 1 or len(node.decorator_list) != 1:
        return ""
    match marks[0]:
        case ast.Call(args=[], keywords=words) if all(word.arg == "schema" for word in words):
            return node.name
        case ast.Call(args=[ast.Constant(value=str(name))]):
            return name
        case ast.Call(args=[], keywords=words):
            given = [word.value for word in words if word.arg == "name"]
            return (
                given[0].value
                if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str)
                else ""
            )
        case ast.Call():
            return ""
    return node.name


def _decorates(mark: ast.expr) -> bool:
    return dotted(mark.func if isinstance(mark, ast.Call) else mark).rpartition(".")[2] == "function_tool"


def _is_tool(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether `function_tool` decorates a function without passing a schema."""
    for mark in node.decorator_list:
        call = mark if isinstance(mark, ast.Call) else None
        name = dotted(call.func if call else mark).rpartition(".")[2]
        if name == "function_tool" and not any(
            word.arg == "schema" for word in (call.keywords if call else ())
        ):
            return True
    return False


def _class_missing(target: str, folders: Sequence[Path]) -> Iterator[str]:
    """Report a class that the user's own module does not have."""
    module, _, name = target.rpartition(".")
    path = _own_module(module, folders)
    tree = parsed(path) if path else None
    if tree is not None and (names := module_names(tree)) is not None and name not in names:
        yield f"names {target}, and {path} has no {name}"


def _lacks_schema(target: str, folders: Sequence[Path]) -> bool:
    module, _, name = target.rpartition(".")
    path = _own_module(module, folders)
    tree = parsed(path) if path else None
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            bases = {dotted(base).rpartition(".")[2] for base in node.bases}
            words = {getattr(part, "name", "") for part in node.body}
            sets = any(
                isinstance(part, ast.Attribute)
                and part.attr == "tool_schema"
                and isinstance(part.ctx, ast.Store)
                for part in walk(node)
            )
            return bases == {"BaseTool"} and "get_openai_tool_schema" not in words and not sets
    return False


def _setting_missing(target: str, config: Mapping[str, Any], folders: Sequence[Path]) -> str:
    """Return a setting that the constructor of the user's own class certainly reads and the file lacks."""
    module, _, name = target.rpartition(".")
    path = _own_module(module, folders)
    tree = parsed(path) if path else None
    owner = lasting(tree).get(name) if tree else None
    if not isinstance(owner, ast.ClassDef) or owner.decorator_list or owner.keywords:
        return ""
    if any(isinstance(part, ast.FunctionDef) and part.name == "__new__" for part in owner.body):
        return ""  # which is called first, with the same settings
    for method in owner.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            looking = (
                _ITS_BASE
                if [dotted(base).rpartition(".")[2] for base in owner.bases] == ["BaseTool"]
                else frozenset()
            )
            missing = (
                read.name
                for read in reads(method, looking)
                if read.is_item and read.parameter == "config" and read.name not in config
            )
            return next(missing, "")
    return ""


def checkpoint_callback(target: str, verl: Path, folders: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the file of the class that verl calls after each checkpoint, with what its methods refuse.

    What they refuse is something that verl passes by name.
    """
    module, _, name = target.rpartition(".")
    path, base = (
        _own_module(module, folders),
        parsed(verl / _CALLBACKS) if os.path.isfile(verl / _CALLBACKS) else None,
    )
    trainer = parsed(verl / _CALLS_BACK) if os.path.isfile(verl / _CALLS_BACK) else None
    tree = parsed(path) if path else None
    owner = lasting(tree).get(name) if tree else None
    if path is None or base is None or trainer is None or not isinstance(owner, ast.ClassDef):
        return
    known = {node.name for node in base.body if isinstance(node, ast.ClassDef)}
    if (
        owner.decorator_list
        or owner.keywords
        or not {dotted(part).rpartition(".")[2] for part in owner.bases} <= known | {"object"}
    ):
        return
    for method in owner.body:
        if (
            not isinstance(method, FUNCTIONS)
            or method.decorator_list
            or method.args.posonlyargs
            or not method.args.args
        ):
            continue
        for source, called in ((trainer, f"self.checkpoint_callback.{method.name}"), (base, "callback_cls")):
            if source is base and method.name != "__init__":
                continue
            for node in walk(source):
                if isinstance(node, ast.Call) and dotted(node.func) == called and not node.args:
                    passed = [word.arg for word in node.keywords if word.arg]
                    if len(passed) == len(node.keywords) and (
                        problem := refused_arguments(_without_self(method.args), passed)
                    ):
                        yield path, f"has a class {name} whose {method.name} {problem.removeprefix('that ')}"
                        return


def _without_self(spec: ast.arguments) -> ast.arguments:
    defaults = spec.defaults[-len(spec.args) + 1 :] if len(spec.args) > 1 else []
    return ast.arguments(
        [], spec.args[1:], spec.vararg, spec.kwonlyargs, spec.kw_defaults, spec.kwarg, defaults
    )


def _own_module(module: str, folders: Sequence[Path]) -> Path | None:
    steps = module.split(".")
    places = (folder.joinpath(*steps) for folder in folders)
    found = (
        path for place in places for path in (place.with_name(f"{place.name}.py"), place / "__init__.py")
    )
    return next((path for path in found if module and os.path.isfile(path)), None)


def yaml_of(path: Path) -> Any:
    """Return the contents of a YAML file; None if it cannot be read, and a string if it is not valid YAML."""
    import yaml  # noqa: PLC0415 - only where a job names such a file

    source = read(path)
    if not isinstance(source, bytes):
        return None
    try:
        return yaml.safe_load(source) or ""
    except (yaml.YAMLError, ValueError, RecursionError):
        return ""
