"""Reads vLLM's attention backends: the enumeration, the platforms' use of it, and methods of classes."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.host.resources import Capability
from verl_doctor.toolkit.collectors.installed.import_path import is_on_path
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.vllm.attention import AttentionBackends, Backend
from verl_doctor.toolkit.collectors.vllm.attention_requested import OPTIONS, VARIABLE
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.sources.python.answers import Missing, Present
from verl_doctor.toolkit.sources.python.evaluate import RAISES, UNCLEAR, returned
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import (
    SourceTree,
    Unreadable,
    constant_keys,
    dotted,
    parse_file,
    read,
    statements,
    walk,
)
from verl_doctor.toolkit.sources.python.symbols import Class, Function

# Newest first. Up to vLLM 0.11.0 the enumeration holds names only, and each platform interprets them.
_ENUMERATIONS = (
    ("v1.attention.backends.registry", "AttentionBackendEnum"),
    ("attention.backends.registry", "AttentionBackendEnum"),
    ("platforms.interface", "_Backend"),
)
_PLATFORMS = ("cuda", "rocm", "xpu", "tpu", "cpu")
# These accept any class that reports support; the others recognise a few names.
_BY_CLASS = ("cuda", "rocm")
_CHOOSES = "get_attn_backend_cls"
_V1_NAMES = "V1_BACKENDS"


def read_backends(
    tree: Tree,
    *,
    names: Collection[str],
    platform: str = "",
    model: Model | None = None,
    capability: str = "",
    path: Sequence[str] = (),
) -> AttentionBackends | Unknown:
    """Read everything about attention backends in a vLLM tree. Classes are read for these names only.

    `capability` is the compute capability of the GPUs, such as "9.0". `path` is where Python would search for
    the packages that they import; without it none counts as missing.
    """
    return _Reading(tree, path, capability).backends(frozenset(names), platform, model)


class _Reading:
    """One read of one tree; files are parsed once."""

    def __init__(self, tree: Tree, path: Sequence[str], capability: str) -> None:
        self._tree = SourceTree(Path(tree.folder), tree.module)
        self._version = tree.version
        self._python_path = path
        self._capability = capability
        self._sources = Sources([self._tree])
        self._parsed: dict[str, ast.Module | Unreadable | None] = {}

    def backends(
        self, names: frozenset[str], platform: str, model: Model | None
    ) -> AttentionBackends | Unknown:
        for module, enumeration in _ENUMERATIONS:
            parsed = self._module(module)
            if isinstance(parsed, Unreadable):
                return Unknown(parsed.reason)
            if parsed is not None and (found := _class(parsed, enumeration)) is not None:
                break
        else:
            return Absent(f"vLLM {self._version} defines its attention backends in an unknown place")
        registry = enumeration != "_Backend"
        by_platform = {name: self._mentioned(name, registry=registry) for name in _PLATFORMS}
        head_size = model.head_size if model is not None and not model.mla else 0
        backends = []
        for backend in _members(found):
            platforms = tuple(name for name, known in by_platform.items() if backend.name in known)
            described = replace(backend, platforms=_where(backend, platforms, registry=registry))
            if registry:
                described = replace(described, problem=self._problem(backend.path))
            if backend.name in {*names, *(name.upper() for name in names)}:
                described = self._with_limits(described, head_size, "" if registry else platform or "cuda")
            backends.append(described)
        return AttentionBackends(
            version=self._version,
            read_from=str(self._path(module)),
            registry=registry,
            backends=tuple(backends),
            platform=platform,
            variable_is_read=self._mentions("envs", VARIABLE),
            variable_is_checked=self._variable_is_checked(),
            variable_sets_option=self._mentions("config.attention", VARIABLE),
            old_engine_unless=self._v1_names(),
            options=self._options(),
            automatic="auto" if self._takes_auto() else "",
            head_size=head_size,
            capability=self._capability,
        )

    def _with_limits(self, backend: Backend, head_size: int, platform: str) -> Backend:
        """Add the class's support for the model."""
        path = backend.path or (self._path_by_platform(backend.name, platform) if platform else "")
        definition = self._class_at(path)
        if definition is None:
            return backend

        def call(name: str, arguments: tuple[Any, ...]) -> Any:
            owner, _, method = name.rpartition(".")
            if method == "DeviceCapability" and len(arguments) == 2:
                return Capability(*arguments)
            return self._answer(definition, method, arguments, call) if owner in {"cls", "self"} else UNCLEAR

        sizes = call("cls.get_supported_head_sizes", ())
        head_sizes = (
            tuple(size for size in sizes if isinstance(size, int)) if isinstance(sizes, tuple) else ()
        )
        supports = call("cls.supports_head_size", (head_size,)) if head_size else UNCLEAR
        if (
            supports is UNCLEAR
            and head_size
            and head_sizes
            and not self._has(definition, "supports_head_size")
        ):
            supports = head_size in head_sizes
        return replace(
            backend,
            path=path,
            head_sizes=head_sizes,
            supports_head_size=_truth(supports),
            is_mla=_truth(call("cls.is_mla", ())),
            is_sparse=_truth(call("cls.is_sparse", ())),
            supports_device=_truth(
                call("cls.supports_compute_capability", (Capability.read(self._capability),))
            )
            if self._capability
            else None,
            lacks=tuple(self._lacking(definition.module)) if self._python_path else (),
        )

    def _lacking(self, module: str) -> Iterator[str]:
        """Yield the packages that a module imports unconditionally, and that are nowhere on the path."""
        tree = self._module(module.partition(".")[2])
        imported: dict[str, None] = {}
        for node in tree.body if isinstance(tree, ast.Module) else ():
            if isinstance(node, ast.Import):
                imported.update({alias.name.partition(".")[0]: None for alias in node.names})
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported[(node.module or "").partition(".")[0]] = None
        for name in imported:
            if name not in sys.stdlib_module_names and not is_on_path(name, self._python_path):
                yield name

    def _answer(self, owner: Class, method: str, arguments: tuple[Any, ...], call: Any) -> Any:
        """Return the result of a class method for these arguments."""
        found = self._sources.member_of_class(owner, method)
        if not isinstance(found, Present) or not isinstance(found.definition, Function):
            return UNCLEAR
        tree = self._module(found.definition.module.partition(".")[2])
        if not isinstance(tree, ast.Module):
            return UNCLEAR
        for node in statements(tree):
            if isinstance(node, ast.FunctionDef) and (node.name, node.lineno) == (
                method,
                found.definition.line,
            ):
                bound = found.definition.role != "staticmethod"
                names = [argument.arg for argument in node.args.args][1 if bound else 0 :]
                return returned(node, dict(zip(names, arguments, strict=False)), call)
        return UNCLEAR

    def _has(self, owner: Class, method: str) -> bool:
        return not isinstance(self._sources.member_of_class(owner, method), Missing)

    def _class_at(self, path: str) -> Class | None:
        found = self._sources.resolve(path) if path else None
        definition = found.definition if isinstance(found, Present) else None
        return definition if isinstance(definition, Class) else None

    def _problem(self, path: str) -> str:
        """Return why there is no such class; empty if it exists, or if unknown."""
        module, _, name = path.rpartition(".")
        if not path or self._tree.own_name(module) is None:
            return ""
        file = self._tree.locate(module)
        if file is None:
            return f"the module {module} does not exist"
        source = read(file.path) if file.kind in {"module", "package"} else b""
        if isinstance(source, Unreadable) or re.search(
            rf"^class {re.escape(name)}\b".encode(), source, re.MULTILINE
        ):
            return ""
        missing = isinstance(self._sources.import_name(module, name), Missing)
        return f"{module} has no {name}" if missing else ""

    def _mentioned(self, platform: str, *, registry: bool) -> frozenset[str]:
        """Return the names that a platform's module mentions.

        Before the registry, return only those that its selection recognises.
        """
        tree = self._module(f"platforms.{platform}")
        if not isinstance(tree, ast.Module):
            return frozenset()
        scope: Iterator[ast.AST] = iter((tree,)) if registry else _functions(tree, _CHOOSES)
        owner = "AttentionBackendEnum" if registry else "_Backend"
        return frozenset(
            node.attr
            for part in scope
            for node in walk(part)
            if isinstance(node, ast.Attribute) and dotted(node.value).rpartition(".")[2] == owner
        )

    def _path_by_platform(self, name: str, platform: str) -> str:
        """Return the class that a platform returns where it compares the choice with this name.

        If there are two, it is the V1 engine's.
        """
        tree = self._module(f"platforms.{platform}")
        functions = _functions(tree, _CHOOSES) if isinstance(tree, ast.Module) else iter(())
        found: list[str] = []
        for function in functions:
            texts = {
                node.targets[0].id: node.value.value
                for node in statements(function)
                if isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and isinstance(node.value, ast.Constant)
            }
            for node in statements(function):
                if isinstance(node, ast.If) and name in _compared_names(node.test):
                    found += [str(text) for text in _returned_texts(node.body, texts) if text]
        return next((path for path in found if ".v1." in path), found[0] if found else "")

    def _variable_is_checked(self) -> bool:
        """Return whether an unknown value raises: when read, or when looked up in the enumeration."""
        envs = self._module("envs")
        for node in walk(envs) if isinstance(envs, ast.Module) else ():
            if isinstance(node, ast.Call) and dotted(node.func) == "env_with_choices":
                first = node.args[0] if node.args else None
                if isinstance(first, ast.Constant) and first.value == VARIABLE:
                    return True
        selector = self._module("attention.selector")
        for node in walk(selector) if isinstance(selector, ast.Module) else ():
            if isinstance(node, ast.If) and _is_none_test(node.test, "selected_backend"):
                return any(isinstance(statement, ast.Raise) for statement in node.body)
        return False

    def _v1_names(self) -> tuple[str, ...]:
        """Return the literal list of values that the V1 engine accepts; empty if there is only one engine."""
        tree = self._module("engine.arg_utils")
        for node in statements(tree) if isinstance(tree, ast.Module) else ():
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Name)
                and node.targets[0].id == _V1_NAMES
                and isinstance(node.value, ast.List)
            ):
                return tuple(constant_keys(node.value) or ())
        return ()

    def _options(self) -> tuple[str, ...]:
        """Return the existing engine arguments about attention backends."""
        tree = self._module("engine.arg_utils")
        arguments = _class(tree, "EngineArgs") if isinstance(tree, ast.Module) else None
        fields = {
            node.target.id
            for node in (arguments.body if arguments is not None else ())
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        return tuple(option for option in OPTIONS if option.partition(".")[0] in fields)

    def _takes_auto(self) -> bool:
        tree = self._module("config.attention")
        config = _class(tree, "AttentionConfig") if isinstance(tree, ast.Module) else None
        return config is not None and any(
            isinstance(node, ast.Compare)
            and any(isinstance(part, ast.Constant) and part.value == "auto" for part in node.comparators)
            for node in walk(config)
        )

    def _mentions(self, module: str, text: str) -> bool:
        tree = self._module(module)
        return isinstance(tree, ast.Module) and any(
            isinstance(node, ast.Constant) and node.value == text for node in walk(tree)
        )

    def _path(self, module: str) -> Path | None:
        file = self._tree.locate(f"{self._tree.name}.{module}")
        return file.path if file is not None else None

    def _module(self, module: str) -> ast.Module | Unreadable | None:
        """Return the syntax tree of a module, named below `vllm`; None if it does not exist."""
        if module not in self._parsed:
            file = self._tree.locate(f"{self._tree.name}.{module}")
            if file is None or file.kind not in {"module", "package"}:
                self._parsed[module] = None
            else:
                self._parsed[module] = parse_file(file.path)
        return self._parsed[module]


def _members(enumeration: ast.ClassDef) -> Iterator[Backend]:
    """Yield the names of an enumeration, in order.

    A value that is not text (`auto()`, `None`) is no class path.
    """
    first: dict[str, str] = {}
    for node in enumeration.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, value = node.targets[0].id, node.value
        if name.startswith("_"):
            continue
        path = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        earlier = first.get(path, "") if is_text else ""
        if is_text:
            first.setdefault(path, name)
        yield Backend(name, path, alias_of=earlier)


def _where(backend: Backend, platforms: tuple[str, ...], *, registry: bool) -> tuple[str, ...]:
    """Assign a registered class that no platform mentions to one or more platforms.

    It goes to the platform in its prefix, or to those that query the class.
    """
    named = tuple(name for name in _PLATFORMS if backend.name.startswith(f"{name.upper()}_"))
    return platforms or named or (_BY_CLASS if registry else ())


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next(
        (node for node in statements(tree) if isinstance(node, ast.ClassDef) and node.name == name), None
    )


def _functions(tree: ast.Module, name: str) -> Iterator[ast.AST]:
    return (node for node in statements(tree) if isinstance(node, ast.FunctionDef) and node.name == name)


def _compared_names(test: ast.expr) -> set[str]:
    """Return the enumeration members that a condition compares for equality."""
    found = set()
    for node in walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.In)):
            found |= {part.attr for part in walk(node.comparators[0]) if isinstance(part, ast.Attribute)}
    return found


def _returned_texts(body: list[ast.stmt], texts: dict[str, Any]) -> Iterator[Any]:
    for statement in body:
        for node in statements(statement):
            if isinstance(node, ast.Return):
                if isinstance(node.value, ast.Constant):
                    yield node.value.value
                elif isinstance(node.value, ast.Name):
                    yield texts.get(node.value.id)


def _is_none_test(test: ast.expr, name: str) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == name
        and isinstance(test.ops[0], ast.Is)
    )


def _truth(value: Any) -> bool | None:
    return None if value is UNCLEAR or value is RAISES else bool(value)
