"""A library's own imports, and breaks among them.

A break inside vLLM is caused by the installed transformers, or by an edit of vLLM itself.

Loading one module of vLLM loads hundreds. Imports at the left margin are followed, as text only: an indented
import is inside a `try`, a branch or a function, and is skipped. A miss is then confirmed in the syntax tree.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.sources.python.answers import Missing
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import ModuleFile, SourceTree, parse_file, read
from verl_doctor.toolkit.sources.python.summary import absolute

_IMPORT = re.compile(
    rb"^(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([\w.]+))", re.MULTILINE
)
_NAME = re.compile(rb"[A-Za-z_]\w*")
_LETTER = re.compile(rb"\w")
_COMMENT = re.compile(rb"#[^\n]*")


@dataclass(frozen=True, slots=True)
class InnerMiss:
    """A missing name that a module of the library imports, and the paths that fail.

    The name is imported from a third package or from the library.
    """

    path: str
    line: int
    column: int
    name: str
    reason: str
    read_from: str
    paths: tuple[str, ...]


def misses_inside(
    library: SourceTree, starts: Mapping[str, Iterable[str]], thirds: Sequence[SourceTree]
) -> Iterator[InnerMiss]:
    """The misses in what the library loads.

    `starts` maps each job path to the modules of the library that it imports.
    """
    sources, reader = (
        Sources([*thirds, library]),
        _Loaded(library, frozenset(third.name for third in thirds)),
    )
    loaded = {path: reader.closure(modules) for path, modules in starts.items()}
    every = {module for modules in loaded.values() for module in modules}
    reader.want_own(every)
    for module in sorted(every):
        for source, name in sorted(set(reader.wanted.get(module, ()))):
            answer = sources.import_name(source, name) if name else sources.import_module(source)
            file = library.locate(module)
            if isinstance(answer, Missing) and file is not None:
                place = _confirmed(file, source, name)
                if place is not None:
                    paths = tuple(path for path, modules in loaded.items() if module in modules)
                    full = f"{source}:{name}" if name else source
                    yield InnerMiss(str(file.path), *place, full, answer.reason, answer.read_from, paths)


class _Loaded:
    """Follows the imports of a library, each module once.

    `wanted` is what each module imports from the third packages, `own` what it imports from the library
    itself.
    """

    def __init__(self, library: SourceTree, thirds: frozenset[str]) -> None:
        self.library, self.thirds = library, thirds
        self.wanted: dict[str, list[tuple[str, str]]] = {}
        self.own: dict[str, set[tuple[str, str]]] = {}
        self._next: dict[str, list[str]] = {}

    def closure(self, starts: Iterable[str]) -> set[str]:
        found: set[str] = set()
        waiting = list(starts)
        while waiting:
            module = waiting.pop()
            if module and module not in found:
                found.add(module)
                waiting += [module.rpartition(".")[0], *self._imports(module)]
        return found

    def want_own(self, modules: set[str]) -> None:
        """Add to `wanted` what these modules import from the library and its text nowhere mentions."""
        by_target: dict[str, list[tuple[str, str]]] = {}
        for module in modules:
            for target, name in self.own.get(module, ()):
                by_target.setdefault(target, []).append((module, name))
        for target, users in by_target.items():
            file = self.library.locate(target)
            readable = file is not None and file.kind in {"module", "package"}
            source = read(file.path) if file is not None and readable else b""
            for module, name in users:
                if file is None or (
                    isinstance(source, bytes) and readable and not _mentions(source, name.encode())
                ):
                    self.wanted.setdefault(module, []).append((target, name))

    def _imports(self, module: str) -> list[str]:
        if module not in self._next:
            self._next[module] = list(self._read(module))
        return self._next[module]

    def _read(self, module: str) -> Iterator[str]:
        file = self.library.locate(module)
        if file is None or file.kind not in {"module", "package"}:
            return
        source = read(file.path)
        for match in _IMPORT.finditer(source) if isinstance(source, bytes) else ():
            target = _full((match[1] or match[3]).decode(), file.package)
            names = _names(match[2]) if match[2] is not None else [""]
            if target.partition(".")[0] in self.thirds:
                self.wanted.setdefault(module, []).extend((target, name) for name in names)
            elif self.library.own_name(target) == target:
                self.own.setdefault(module, set()).update((target, name) for name in names)
                yield target
                inner = (f"{target}.{name}" for name in names if name)
                yield from (name for name in inner if self.library.locate(name) is not None)


def _mentions(source: bytes, name: bytes) -> bool:
    """Whether a text has this whole word.

    Regular expressions would have to be compiled for thousands of names.
    """
    begin = source.find(name)
    while begin >= 0 and name:
        around = source[max(begin - 1, 0) : begin] + source[begin + len(name) : begin + len(name) + 1]
        if not _LETTER.search(around):
            return True
        begin = source.find(name, begin + 1)
    return not name


def _full(target: str, package: str) -> str:
    dots = len(target) - len(target.lstrip("."))
    return absolute(ast.ImportFrom(target.lstrip(".") or None, [], dots), package) if dots else target


def _names(listed: bytes) -> list[str]:
    """Return the names that a from-import imports; their aliases do not matter here."""
    parts = _COMMENT.sub(b"", listed).strip().strip(b"()\\").split(b",")
    return [match[0].decode() for part in parts if (match := _NAME.match(part.strip()))]


def _confirmed(file: ModuleFile, source: str, name: str) -> tuple[int, int] | None:
    """Return the place of the import at the module's top level; None if the match was inside other text."""
    tree = parse_file(file.path)
    for node in tree.body if isinstance(tree, ast.Module) else ():
        match node:
            case ast.ImportFrom(names=aliases) if absolute(node, file.package) == source:
                for alias in aliases:
                    if alias.name == name:
                        return alias.lineno, alias.col_offset
            case ast.Import(names=aliases) if not name:
                for alias in aliases:
                    if alias.name == source:
                        return alias.lineno, alias.col_offset
    return None
