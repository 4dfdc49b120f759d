"""A tree of Python sources: the files of its modules, and their syntax trees. Nothing is imported.

Whatever cannot be read results in an `Unreadable` with the reason: a source tree may contain anything, and
nothing in it may stop verl-doctor.
"""

from __future__ import annotations

import ast
import errno
import functools
import os
import re
import stat
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

# Larger than any module written by hand; generated tables of this size define no interface.
_LARGEST = 8 * 1024 * 1024
_COMPILED = (".so", ".pyd")
# The folder certainly does not exist. After any other error its content is unknown.
_NO_FOLDER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})
# How warnings are handled is one setting for all threads.
_PARSING = threading.Lock()


@dataclass(frozen=True)
class Unreadable:
    """An existing file, and why its contents are unknown.

    `by` is the obstacle: the file system, a text that is no Python of any release, the syntax at this line,
    or a limit of the reader itself.
    """

    reason: str
    by: Literal["file", "damage", "syntax", "reader"] = "file"
    line: int = 0


@dataclass(frozen=True)
class ModuleFile:
    """The file of a module. A `namespace` is a folder without `__init__.py`; its path is the folder.

    A `hidden` one is in a folder that may not be read: name and path are the folder's, `why` is the reason.
    """

    name: str
    path: Path
    kind: Literal["module", "package", "compiled", "namespace", "hidden"]
    why: str = ""

    @property
    def package(self) -> str:
        """The package that relative imports of the module start from."""
        return self.name if self.kind == "package" else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class SourceTree:
    """One package folder, and the dotted name of its import ("vllm", or "pkg.verl" when vendored).

    `alias` is a further prefix for this tree: a vendored verl still writes its own imports as `verl...`.
    Modules whose text holds none of the words `about` are irrelevant and stay unread.
    """

    folder: Path
    name: str
    alias: str = ""
    about: tuple[str, ...] = ()
    _listings: dict[Path, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)
    _hidden: dict[Path, str] = field(default_factory=dict, repr=False, compare=False)
    _located: dict[str, ModuleFile | None] = field(default_factory=dict, repr=False, compare=False)

    def concerns(self, source: bytes) -> bool:
        """Return whether a text holds one of the words, perhaps with a suffix: "ray" is not in "array"."""
        return not self.about or _begins_with(self.about).search(source) is not None

    def own_name(self, dotted: str) -> str | None:
        """Return a dotted name as this tree writes it, or None for a name of another package."""
        for prefix in (self.name, self.alias):
            if prefix and (dotted == prefix or dotted.startswith(f"{prefix}.")):
                return self.name + dotted[len(prefix) :]
        return None

    def locate(self, name: str) -> ModuleFile | None:
        """Find a module by its name in this tree, as the import system would."""
        if name not in self._located:
            self._located[name] = self._find(name)
        return self._located[name]

    def _find(self, name: str) -> ModuleFile | None:
        parts = name[len(self.name) :].lstrip(".").split(".") if name != self.name else []
        if not all(part.isidentifier() for part in parts):
            return None
        path = self.folder.joinpath(*parts)
        if "__init__.py" in self._files(path):
            return ModuleFile(name, path / "__init__.py", "package")
        if path in self._hidden:
            return self._hidden_below(parts)
        if not parts:
            return None
        siblings = self._files(path.parent)
        if f"{path.name}.py" in siblings:
            return ModuleFile(name, path.with_name(f"{path.name}.py"), "module")
        for sibling in siblings:
            if sibling.startswith(f"{path.name}.") and sibling.endswith(_COMPILED):
                return ModuleFile(name, path.with_name(sibling), "compiled")
        if path.parent in self._hidden:
            return self._hidden_below(parts)
        return ModuleFile(name, path, "namespace") if self._files(path) else None

    def _hidden_below(self, parts: list[str]) -> ModuleFile | None:
        """Return the first unreadable folder on the way to a module."""
        for end in range(len(parts) + 1):
            folder = self.folder.joinpath(*parts[:end])
            self._files(folder)
            if folder in self._hidden:
                name = ".".join([self.name, *parts[:end]])
                return ModuleFile(name, folder, "hidden", self._hidden[folder])
        return None

    def name_of(self, path: Path) -> str | None:
        """Return the dotted name of a source file of this tree."""
        try:
            parts = list(path.relative_to(self.folder).with_suffix("").parts)
        except ValueError:
            return None
        if parts[-1] == "__init__":
            parts.pop()
        return ".".join([self.name, *parts])

    def files(self, package: str = "") -> Iterator[Path]:
        """Yield every source file, of one package only when it is named, in a stable order.

        Links to folders are not followed.
        """
        top = (
            self.folder.joinpath(*package[len(self.name) :].lstrip(".").split("."))
            if package
            else self.folder
        )
        for folder, below, names in os.walk(top):
            below[:] = sorted(name for name in below if name.isidentifier() and name != "__pycache__")
            yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))

    def _files(self, folder: Path) -> frozenset[str]:
        """Return the entries of a folder, listed once: querying the file system for each name costs more."""
        if folder not in self._listings:
            try:
                self._listings[folder] = frozenset(os.listdir(folder))  # noqa: PTH208 - names alone, thousands of them
            except (OSError, ValueError) as error:
                self._listings[folder] = frozenset()
                if isinstance(error, OSError) and error.errno not in _NO_FOLDER:
                    self._hidden[folder] = f"{folder} cannot be read: {error.strerror or error}"
        return self._listings[folder]


@functools.cache
def _begins_with(words: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile(rf"(?<![A-Za-z])(?:{'|'.join(map(re.escape, words))})".encode())


_TREES_KEPT = 160
"""A check of a changed script parses 131 files, the trainer in six collectors.

Where 128 were kept, it parsed 25 of them again. A tree takes 30 bytes for each of its source.
"""


def read(path: Path) -> bytes | Unreadable:
    """Return the bytes of a source file. A pipe or a device is not read: it may have no end."""
    try:
        seen = path.stat()
        if not stat.S_ISREG(seen.st_mode):
            return Unreadable(f"{path} is not a file")
        if seen.st_size > _LARGEST:
            return Unreadable(f"{path} is larger than {_LARGEST} bytes", "reader")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        return Unreadable(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}")


@functools.lru_cache(maxsize=_TREES_KEPT)
def parse(source: bytes, path: Path) -> ast.Module | Unreadable:
    """Return the syntax tree of a source file, in the encoding that it declares.

    Callers share it, and must not change it.
    """
    try:
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other projects' invalid escapes are irrelevant
            return ast.parse(source, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        number = (error.lineno or 0) if isinstance(error, SyntaxError) else 0
        line = f" (line {number})" if number else ""
        message = error.msg if isinstance(error, SyntaxError) else str(error) or "nested too deeply"
        reason = f"{path} cannot be parsed: {type(error).__name__}: {message}{line}"
        if isinstance(error, (RecursionError, MemoryError)):
            return Unreadable(reason, "reader")
        # No Python reads zero bytes; any other syntax may be a newer version's.
        return Unreadable(reason, "damage" if b"\0" in source else "syntax", number)


def parse_file(path: Path) -> ast.Module | Unreadable:
    """Return the syntax tree of a source file, or why it has none."""
    source = read(path)
    return parse(source, path) if isinstance(source, bytes) else source


def parsed(path: Path) -> ast.Module | None:
    """Return the syntax tree of a source file, None if it cannot be read or parsed.

    This is for callers to which the reason does not matter.
    """
    tree = parse_file(path)
    return tree if isinstance(tree, ast.Module) else None


@functools.lru_cache(maxsize=4096)
def parse_expression(text: str) -> ast.expr | None:
    """Return the syntax tree of one expression, such as the text of a string annotation."""
    tree = parse(text.strip().encode("utf-8", "replace"), Path("<annotation>"))
    if isinstance(tree, Unreadable) or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return None
    return tree.body[0].value


class _Below(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of each class of nodes that may hold nodes: names, contexts and operators do not."""

    _WITHOUT = frozenset(
        (
            *("arg", "asname", "attr", "id", "kwd_attrs", "module", "rest"),
            *("ctx", "op", "ops"),
            *("conversion", "is_async", "kind", "level", "simple", "type_comment"),
        )
    )

    def __missing__(self, node: type[ast.AST]) -> tuple[str, ...]:
        without = self._WITHOUT if node.__name__ == "TypeAlias" else self._WITHOUT | {"name"}
        names = () if node is ast.Constant else node._fields
        return self.setdefault(node, tuple(name for name in names if name not in without))


_BELOW = _Below()


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and every node below it in the order of `ast.walk`, in half of its time.

    Load and store contexts and operators are left out.
    """
    found = [node]
    for part in found:
        yield part
        for name in _BELOW[type(part)]:
            value = getattr(part, name, None)
            if type(value) is list:
                found += [entry for entry in value if isinstance(entry, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes directly below one as `ast.iter_child_nodes` does, faster, without trivial ones.

    The order is that of `ast.iter_child_nodes`.

    These are the load and store contexts and the operators.
    """
    for value in vars(node).values():
        if isinstance(value, list):
            yield from (entry for entry in value if isinstance(entry, ast.AST))
        elif isinstance(value, ast.AST) and value._fields:
            yield value


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and every statement below it, in any block. Expressions are skipped."""
    found = [node]
    for part in found:
        yield part
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            found += getattr(part, name, ())


def is_none(node: ast.expr) -> bool:
    """Return whether an expression is the literal None."""
    return isinstance(node, ast.Constant) and node.value is None


def dotted(node: ast.expr | None) -> str:
    """Return `a.b.c` as text, or "" for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Return the whole names of what a text imports, by the names that it gets.

    Those of its own package are left out.
    """
    return {
        alias.asname or alias.name: alias.name
        if isinstance(node, ast.Import)
        else f"{node.module}.{alias.name}"
        for node in walk(tree)
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module)
        for alias in node.names
    }


def whole_name(node: ast.AST, imported: Mapping[str, str]) -> str:
    """Return the whole name of a function or variable, given the text's imports; "" for all others."""
    name, dot, rest = dotted(node if isinstance(node, ast.expr) else None).partition(".")
    return imported.get(name, name) + dot + rest


def text_of(node: ast.AST, limit: int = 100) -> str:
    """Return an expression as text on one line, for people."""
    try:
        text = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        return "an expression"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def constant_keys(value: ast.expr | None) -> dict[str, str] | None:
    """Return the strings of a literal list, tuple or set, or a literal dict's keys with string values.

    None when the literal holds anything unknown.
    """
    match value:
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            texts = [element.value for element in elements if isinstance(element, ast.Constant)]
            found = {text: "" for text in texts if isinstance(text, str)}
            return found if len(texts) == len(elements) else None
        case ast.Dict(keys=keys, values=values):
            table = {}
            for key, entry in zip(keys, values, strict=True):
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    return None
                table[key.value] = (
                    entry.value if isinstance(entry, ast.Constant) and isinstance(entry.value, str) else ""
                )
            return table
    return None
