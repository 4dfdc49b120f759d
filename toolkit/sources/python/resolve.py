"""Resolves a dotted name to its definition, across the files of one or several source trees.

The result is `Present`, `Missing` or `Unresolved`. What cannot be followed is unresolved, never guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from verl_doctor.toolkit.sources.python.answers import (
    Answer,
    Definition,
    External,
    Missing,
    Opaque,
    Present,
    Unresolved,
)
from verl_doctor.toolkit.sources.python.classes import member as member_of_class
from verl_doctor.toolkit.sources.python.lazy_module import exports
from verl_doctor.toolkit.sources.python.source import ModuleFile, SourceTree, Unreadable, parse, read
from verl_doctor.toolkit.sources.python.summary import summarise
from verl_doctor.toolkit.sources.python.symbols import (
    Alias,
    Attribute,
    Binding,
    Class,
    Function,
    Module,
    Variable,
)

# Compiled or generated modules, by the names that a package may use: `_C`, `_moe_C`, `_version`.
_COMPILED = re.compile(r"_version|_(?:\w+_)?C(?:_\w+)?|vllm_flash_attn|\w+_pb2(?:_grpc)?")
# Names that every module has without binding them.
_IMPLICIT = frozenset(
    {
        "__name__",
        "__doc__",
        "__file__",
        "__path__",
        "__spec__",
        "__loader__",
        "__package__",
        "__dict__",
        "__builtins__",
    }
)


_Seen = frozenset[tuple[str, str]]


class Sources:
    """Several source trees, summarised one module at a time and only on request.

    `unread` are requested modules that could not be read. Those that a lookup met are added to `touched`,
    which the caller must clear.
    """

    def __init__(self, trees: Iterable[SourceTree]) -> None:
        self._trees = tuple(trees)
        self._modules: dict[str, Module | Opaque | None] = {}
        self._exports: dict[str, dict[str, str]] = {}
        self.unread: dict[str, tuple[ModuleFile, Unreadable]] = {}
        self.touched: set[str] = set()

    def own_name(self, dotted: str) -> str | None:
        """Return the canonical form of a name in one of the trees."""
        for tree in self._trees:
            if (name := tree.own_name(dotted)) is not None:
                return name
        return None

    def module(self, name: str) -> Module | Opaque | None:
        """Return the summary of a module by its canonical name; None when it does not exist."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        if name in self.unread:
            self.touched.add(name)
        return self._modules[name]

    def file_of(self, name: str) -> ModuleFile | None:
        """Return where a module lies."""
        tree = self.tree_of(name)
        return tree.locate(name) if tree else None

    def add(self, tree: ast.Module, file: ModuleFile) -> None:
        """Summarise a module that the caller has parsed."""
        self._modules[file.name] = _summary(tree, file)

    def import_module(self, dotted: str) -> Answer:
        """Return what `import dotted` would find. A module is a file: a package's attribute is not enough."""
        name = self.own_name(dotted)
        if name is None:
            return Present(External(dotted))
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            module = self.module(part)
            if isinstance(module, Opaque) and module.hidden:
                return Unresolved(module.why)
            if module is None:
                parent = self.module(".".join(parts[: end - 1])) if end > 1 else None
                if (
                    may_be_built(parts[end - 1])
                    or (isinstance(parent, Module) and parent.open)
                    or self._is_made(part)
                ):
                    return Unresolved(f"{part} may be compiled or made at run time")
                where = parent.path if isinstance(parent, Module) else ""
                return Missing("module", f"the module {part} does not exist", where)
        found = self.module(name)
        return Present(found) if found is not None else Unresolved(name)

    def import_name(self, dotted: str, name: str) -> Answer:
        """Return what `from dotted import name` would find."""
        module = self.import_module(dotted)
        if not isinstance(module, Present):
            return module
        return self.member(module.definition, name)

    def resolve(self, dotted: str) -> Answer:
        """Return what a dotted path refers to: modules, then what they bind, then members of that."""
        try:
            return self._resolve(dotted, frozenset())
        except RecursionError:
            return Unresolved(f"{dotted} leads too deep")

    def member(self, owner: Definition, name: str) -> Answer:
        """Return what `owner.name` refers to; `owner` is the object itself and not an instance of it."""
        try:
            return self._member(owner, name, frozenset())
        except RecursionError:
            return Unresolved(f"{name} leads too deep")

    def names_for_annotations(self, module: Module, name: str) -> Answer:
        """Look a name up as a type checker would: imports for type checkers count too."""
        if name in module.typing_names and name not in module.names:
            try:
                return self._bound(module, name, module.typing_names[name], frozenset())
            except RecursionError:
                return Unresolved(f"{name} leads too deep")
        return self.member(module, name)

    def tree_of(self, name: str) -> SourceTree | None:
        """Return the tree that contains a module, by its canonical name."""
        return next((tree for tree in self._trees if tree.own_name(name) == name), None)

    def _read(self, name: str) -> Module | Opaque | None:
        file = self.file_of(name)
        if file is None:
            return None
        if file.kind == "namespace":
            return Module(name, str(file.path), is_package=True)
        if file.kind == "compiled":
            return Opaque(f"{name} is compiled")
        if file.kind == "hidden":
            return self._unread(name, file, Unreadable(file.why))
        source = read(file.path)
        tree = self.tree_of(name)
        if tree is not None and not isinstance(source, Unreadable) and not tree.concerns(source):
            return Opaque(f"{name} contains nothing about {', '.join(tree.about)}")
        found = source if isinstance(source, Unreadable) else _summary_of(source, file)
        return self._unread(name, file, found) if isinstance(found, Unreadable) else found

    def _unread(self, name: str, file: ModuleFile, why: Unreadable) -> Opaque:
        self.unread[name] = file, why
        return Opaque(why.reason, hidden=file.kind == "hidden")

    def _resolve(self, dotted: str, seen: _Seen) -> Answer:
        name = self.own_name(dotted)
        if name is None:
            return Present(External(dotted))
        tree = self.tree_of(name)
        root = tree.name if tree else name
        resolved: Answer = self.import_module(root)
        path = root
        for part in name[len(root) :].split(".")[1:]:
            if not isinstance(resolved, Present):
                return resolved
            path = f"{path}.{part}"
            unread = isinstance(resolved.definition, Opaque)  # a package whose own text is irrelevant
            inner = self.module(path) if unread else None
            resolved = Present(inner) if inner is not None else self._member(resolved.definition, part, seen)
        return resolved

    def _member(self, owner: Definition, name: str, seen: _Seen) -> Answer:
        match owner:
            case Module():
                return self._of_module(owner, name, seen)
            case Class():
                return self.member_of_class(owner, name)
            case External(dotted=dotted):
                return Present(External(f"{dotted}.{name}"))
            case Opaque(why=why):
                return Unresolved(why)
        return Unresolved(f"{name} is read from a value whose type is not known")

    def _of_module(self, module: Module, name: str, seen: _Seen) -> Answer:
        if (module.name, name) in seen:  # `from package import part` in the package itself means the module
            inner = self.module(f"{module.name}.{name}") if module.is_package else None
            return Present(inner) if inner else Unresolved(f"{module.name}.{name} is imported in a circle")
        seen |= {(module.name, name)}
        if name in module.names:
            return self._bound(module, name, module.names[name], seen)
        if module.is_package and (inner := self.module(f"{module.name}.{name}")) is not None:
            if isinstance(inner, Opaque) and inner.hidden:
                return Unresolved(inner.why)
            return Present(inner)
        if name in _IMPLICIT:
            return Present(Variable(name, module.name, 1))
        reason = module.open
        for star in module.stars:
            resolved = self._through_star(star, name, seen)
            if isinstance(resolved, Present):
                return resolved
            reason = reason or (resolved.reason if isinstance(resolved, Unresolved) else "")
        if module.lazy is not None:
            if name in module.lazy.table:
                return self._served(module, name, module.lazy.table[name], seen)
            for package in module.lazy.computed:
                exported = self._exported(".".join(filter(None, (module.name, package))))
                # transformers 5 serves XTokenizerFast where only XTokenizer is left.
                for spelling in (name, name.removesuffix("Fast")):
                    if spelling in exported:
                        return self._served(module, name, f"{exported[spelling]}:{spelling}", seen)
            if not module.lazy.complete:
                reason = reason or f"{module.name} has a __getattr__ that cannot be read"
        if reason or (module.is_package and _COMPILED.fullmatch(name)):
            return Unresolved(reason or f"{module.name}.{name} may be compiled")
        return Missing("name", f"{module.name} has no {name}", module.path)

    def _bound(self, module: Module, name: str, bindings: tuple[Binding, ...], seen: _Seen) -> Answer:
        answers = [self._follow(binding, seen) for binding in bindings]
        present = list(
            dict.fromkeys(_Same(resolved.definition) for resolved in answers if isinstance(resolved, Present))
        )
        if len(present) == 1:
            return Present(present[0].definition)
        if present:
            return Present(Opaque(f"{module.name}.{name} is bound in {len(present)} ways"))
        lacked = [resolved for resolved in answers if isinstance(resolved, Missing)]
        # A module that hands on what is missing fails itself, or catches that and does not bind the name
        # either.
        if lacked and len(lacked) == len(bindings) and not (module.open or module.stars or module.lazy):
            return lacked[0]
        return Unresolved(f"{module.name} binds {name}, which leads nowhere")

    def _follow(self, binding: Binding, seen: _Seen) -> Answer:
        if not isinstance(binding, Alias):
            return Present(binding)
        if binding.module_only:
            return self.import_module(binding.target)
        source, _, name = binding.target.rpartition(".")
        if self.own_name(source) is None:
            return Present(External(binding.target))
        # A module is found by its file, whatever its package binds under the same name.
        owner = self.import_module(source) if self.file_of(source) else self._resolve(source, seen)
        return self._member(owner.definition, name, seen) if isinstance(owner, Present) else owner

    def _exported(self, package: str) -> dict[str, str]:
        """Return what the files below a package export, and the exporting file."""
        if package not in self._exports:
            tree = self.tree_of(package)
            self._exports[package] = exports(tree, package) if tree else {}
        return self._exports[package]

    def _is_made(self, name: str) -> bool:
        """Return whether the top package creates a module of this name at run time."""
        top = self.module(name.partition(".")[0])
        return isinstance(top, Module) and any(re.fullmatch(pattern, name) for pattern in top.made)

    def _through_star(self, source: str, name: str, seen: _Seen) -> Answer:
        resolved = self.import_module(source)
        module = resolved.definition if isinstance(resolved, Present) else None
        if not isinstance(module, Module):
            return Unresolved(f"a star import from {source} may bind it")
        exported = name in module.exported if module.exported is not None else not name.startswith("_")
        return self._of_module(module, name, seen) if exported else Missing("name", "", module.path)

    def _served(self, module: Module, name: str, text: str, seen: _Seen) -> Answer:
        """Follow a lazy table's entry in any of its usual forms: `.mod:attr`, `mod:attr`, `submodule`."""
        source, _, attribute = text.partition(":")
        attribute = attribute or name
        if source.startswith("."):
            source = module.name + source
        for spelling in (source, f"{module.name}.{source}"):
            if source and self.own_name(spelling) is not None:
                resolved = self._resolve(f"{spelling}.{attribute}", seen)
                if isinstance(resolved, Present):
                    return resolved
        return Present(Opaque(f"{module.name} serves {name} through __getattr__"))

    def member_of_class(self, owner: Class, name: str) -> Answer:
        """Return a member of a class, or of an instance of it, by name; bases are followed."""
        return member_of_class(self, owner, name)


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """Compare definitions by place: two imports of the same definition are equal."""

    definition: Definition

    def _key(self) -> object:
        definition = self.definition
        match definition:
            case Module(name=name) | External(dotted=name):
                return name
            case Class() | Function() | Attribute() | Variable():
                return (definition.module, definition.name, definition.line)
        return id(definition)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


_summaries: WeakKeyDictionary[ast.Module, dict[ModuleFile, Module | Opaque]] = WeakKeyDictionary()
"""A syntax tree that several collectors share is summarised once, and forgotten with the tree."""


def _summary(tree: ast.Module, file: ModuleFile) -> Module | Opaque:
    of_tree = _summaries.setdefault(tree, {})
    if file not in of_tree:
        try:
            of_tree[file] = summarise(tree, file.name, str(file.path), is_package=file.kind == "package")
        except RecursionError:
            of_tree[file] = Opaque(f"{file.path} is nested too deep")
    return of_tree[file]


def _summary_of(source: bytes, file: ModuleFile) -> Module | Opaque | Unreadable:
    tree = parse(source, file.path)
    return tree if isinstance(tree, Unreadable) else _summary(tree, file)


def may_be_built(name: str) -> bool:
    """Return whether a module is compiled or generated, and so not in every source tree.

    Examples: `_C`, `_version`, `vllm_flash_attn`, `api_pb2`.
    """
    return name.startswith("_") or name == "vllm_flash_attn" or name.endswith(("_pb2", "_pb2_grpc"))
