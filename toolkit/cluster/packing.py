"""Packs sources for a node, without comments, docstrings and code that is not used there.

Line numbers stay as they are, so tracebacks from a node point into the real sources.
"""

from __future__ import annotations

import ast
import json
import os
import re
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import UnionType
from typing import TypeGuard

from verl_doctor.toolkit.engine import kept_index
from verl_doctor.toolkit.probes.node import SINGLES
from verl_doctor.toolkit.system.own_files import TOOLKIT

_PACKAGE = "verl_doctor.toolkit"
# The doctor's dependencies in pure Python. Of the others, collectors need only psutil and PyYAML, which come
# with Ray.
_PURE = ("dacite", "packaging", "platformdirs", "pynvml")
# Packages of which only a part is used.
_TRIMMED = frozenset({"packaging", "pynvml"})
# What `import *` and `dir()` read: these name functions that nothing else does.
_LISTINGS = frozenset({"__all__", "__dir__"})
# Passed to a child by its folder, not imported by name.
_BY_PLACE = ("pynvml",)
# Imported only by functions that nothing calls (SpecifierSet.to_range), where no statement of a module
# imports it.
_NEVER_LOADED = frozenset({"packaging.ranges"})
_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
# Conditions that are false on every node while it runs the code.
_FALSE = frozenset(
    {
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
        *(f"sys.platform == '{system}'" for system in ("win32", "darwin", "ios")),
        "not TYPE_CHECKING and _is_android_app()",  # platformdirs
    }
)
_WORDS = 3500  # more save nothing that counts
_WORD = re.compile(r"\w+")
_CODED = re.compile(rb"[A-Za-z_][A-Za-z_0-9]+|(?:\\n)+ *")
_DOCSTRING = b'"."'  # of a class: a dataclass without docstring generates one, which takes time


@dataclass(frozen=True)
class Contents:
    """What a parcel holds besides what these import.

    `modules` are names of modules of `toolkit`, `beside` files of `checks` and `patches`, which keep their
    docstrings: the titles of rules and fixes. Functions in `uncalled` (MODULE.NAME) are never called on a
    node, and modules in `unused` are never imported there: what only these import is left out.
    """

    main: str
    modules: frozenset[str]
    beside: tuple[Path, ...] = ()
    uncalled: frozenset[str] = frozenset()
    unused: frozenset[str] = frozenset()


def pack(contents: Contents) -> bytes:
    """Return the packed sources.

    They are kept for the next run while the doctor's files and the pure packages stay the same.
    """
    pure = sorted(
        f"{path} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in _pure_files().values()
    )
    names = (sorted(contents.modules), sorted(contents.uncalled), sorted(contents.unused))
    about = repr((contents.main, *names, [str(path) for path in contents.beside], pure))

    def made() -> list[str]:
        return [about, b64encode(packed_files(sources(contents))).decode("ascii")]

    number = zlib.crc32(about.encode("utf-8", "surrogateescape"))
    kept = kept_index.section(f"parcel-{number:08x}", made)
    return b64decode((kept if isinstance(kept, list) and kept[:1] == [about] else made())[1])


def sources(contents: Contents) -> dict[str, str]:
    """Return the compact sources by file name, with our modules and pure packages that they import."""
    files = {"__main__.py": contents.main}
    imported: set[str] = set()
    for path in contents.beside:
        text = path.read_text("utf-8")
        if path.suffix == ".py":
            tree = ast.parse(text)
            imported.update(_names_in(tree, ""))
            text = compact(text, tree, rules=True)
        files[_file_name(path)] = text
    waiting = [*contents.modules, *imported]
    seen = set(contents.unused)
    while waiting:
        name = waiting.pop()
        source = None if name in seen else _own_file(name)
        if source is None:
            continue
        seen.add(name)
        text = source.read_text("utf-8")
        tree = ast.parse(text)
        files[_file_name(source)] = compact(text, tree)
        tree.body = [
            node
            for node in tree.body
            if not isinstance(node, ast.FunctionDef) or f"{name}.{node.name}" not in contents.uncalled
        ]
        names = set(_names_in(tree, name))
        imported |= names
        waiting += [*names, name.rpartition(".")[0]]
    return files | _pure_sources(imported, files.values())


def packed_files(files: Mapping[str, str]) -> bytes:
    """Return texts by file name as `probes.node` unpacks them.

    Deflate finds repetitions in the last 32 kB only. One or two bytes that ASCII leaves free stand for each
    of the most frequent words; line ends with the spaces after them count as words.
    """
    text = json.dumps(dict(sorted(files.items())), separators=(",", ":")).encode("ascii")
    counts = Counter(_CODED.findall(text))
    saved = {word: (count - 1) * (len(word) - 2) for word, count in counts.items() if count > 2}
    chosen = sorted(saved, key=lambda word: (-saved[word], word))[:_WORDS]
    chosen.sort(key=lambda word: (-counts[word], word))
    chosen[SINGLES:] = sorted(chosen[SINGLES:])
    codes = {word: _code(number) for number, word in enumerate(chosen)}
    coded = _CODED.sub(lambda found: codes.get(found[0], found[0]), text)
    return zlib.compress(b"\0".join(chosen) + b"\n" + coded, 9)


def _code(number: int) -> bytes:
    """Return the bytes for a word: one for the first `SINGLES`, two for others."""
    if number < SINGLES:
        return bytes([128 + number])
    first, second = divmod(number - SINGLES, 256)
    return bytes([128 + SINGLES + first, second])


def _own_file(name: str) -> Path | None:
    """Return the source of a module or package of `toolkit`, None for any other name."""
    if name != _PACKAGE and not name.startswith(f"{_PACKAGE}."):
        return None
    path = TOOLKIT.joinpath(*name.split(".")[2:])
    file = path / "__init__.py" if os.path.isdir(path) else path.with_suffix(".py")
    return file if os.path.exists(file) else None


def _file_name(path: Path) -> str:
    return f"verl_doctor/{path.relative_to(TOOLKIT.parent)}"


def _names_in(tree: ast.Module, name: str) -> Iterator[str]:
    """Yield the full names of our and the pure packages' modules that this module imports at any depth."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in _FALSE:
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(name.split(".")[: -node.level]) if node.level else ""
            module = ".".join(filter(None, (above, node.module)))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _pure_sources(imported: Collection[str], own: Iterable[str]) -> dict[str, str]:
    """Return compact sources of these modules of the pure packages, and of their imports, by file name.

    What neither the doctor's `own` sources nor other modules name is left out of the trimmed packages.
    """
    files = _pure_files()

    def whole(name: str) -> str:
        text = files[name].read_text("utf-8")
        return compact(text, ast.parse(text))

    def trimmed(name: str, modules: Mapping[str, str]) -> str:
        if name.partition(".")[0] not in _TRIMMED:
            return modules[name]
        others = (text for other, text in modules.items() if other != name)
        return without_unused(modules[name], words.union(*map(_words_in, others)))

    words = set().union(*map(_words_in, own))
    texts = _with_imported(imported, files, whole)
    while (smaller := {name: trimmed(name, texts) for name in texts}) != texts:
        texts = _with_imported(imported, files, smaller.__getitem__)
    return {
        f"{name.replace('.', '/')}{'/__init__' if _is_package(files[name]) else ''}.py": text
        for name, text in texts.items()
    }


def _with_imported(
    names: Iterable[str], files: Mapping[str, Path], source: Callable[[str], str]
) -> dict[str, str]:
    """Return the sources of those of these modules that are among `files`, and of their imports, by name."""
    texts: dict[str, str] = {}
    waiting = [*names, *_BY_PLACE]
    while waiting:
        name = waiting.pop()
        if name in texts or name not in files:
            continue
        texts[name] = source(name)
        tree = ast.parse(texts[name])
        within = f"{name}.__init__" if _is_package(files[name]) else name
        always = ast.Module([node for node in tree.body if not isinstance(node, _DEFINITIONS)], [])
        left_out = _NEVER_LOADED.difference(_names_in(always, within))
        waiting += [*{*_names_in(tree, within)}.difference(left_out), name.rpartition(".")[0]]
    return texts


def _is_package(path: Path) -> bool:
    return path.name == "__init__.py"


def _pure_files() -> dict[str, Path]:
    """Return the sources of the pure packages that are installed, by the name of their module."""
    found: dict[str, Path] = {}
    for package in _PURE:
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        found[package] = origin
        for path in origin.parent.rglob("*.py") if spec.submodule_search_locations else ():
            if path != origin:
                parts = path.relative_to(origin.parent.parent).with_suffix("").parts
                found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def compact(text: str, tree: ast.Module, *, rules: bool = False) -> str:
    """Return a source without comments, docstrings and unused annotations. Every statement stays in its line.

    A comment after code stays where a string in the same line might contain its sign. Annotations stay where
    they may name the facts that a function needs: those of functions that are public, decorated or passed on.
    Files of `rules` keep their docstrings.
    """
    lines = text.encode("utf-8").splitlines(keepends=True)
    strings: set[int] = set()  # lines of strings, from 0
    removed: list[tuple[ast.Constant, bytes]] = []
    own: list[ast.FunctionDef] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or _is_constant(node, str | bytes):
            strings.update(range(node.lineno - 1, node.end_lineno or node.lineno))
        if not rules:
            removed += _docstrings(node)
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            own.append(node)
    for number, line in enumerate(lines):
        if number not in strings:
            lines[number] = line.partition(b"#")[0].rstrip() + b"\n"
    for constant, instead in removed:
        first, last = constant.lineno - 1, (constant.end_lineno or constant.lineno) - 1
        rest = lines[last][constant.end_col_offset :].strip()
        if not rest or rest.startswith(b"#"):
            lines[first] = lines[first][: constant.col_offset] + instead + b"\n"
            lines[first + 1 : last + 1] = [b"\n"] * (last - first)
    kept = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[:1] != "_"
    } | _passed(tree)
    unread = [place for node in own if node.name not in kept for place in _annotations(node, lines)]
    for number, begin, end in sorted(unread, reverse=True):
        lines[number] = lines[number][:begin] + lines[number][end:]
    return b"".join(lines).decode("utf-8")


def _passed(tree: ast.Module) -> set[str]:
    """Return the names that a module uses otherwise than in calling them."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called}


def _annotations(function: ast.FunctionDef, lines: list[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield the line, from 0, and columns of each annotation that starts and ends on its sign's line."""
    arguments = (node for node in ast.walk(function.args) if isinstance(node, ast.arg))
    signs = [(argument.annotation, b":") for argument in arguments]
    for annotation, sign in [*signs, (function.returns, b"->")]:
        if annotation is None or annotation.end_lineno != annotation.lineno:
            continue
        number = annotation.lineno - 1
        before = lines[number][: annotation.col_offset].rstrip()
        if before.endswith(sign):
            yield number, len(before) - len(sign), annotation.end_col_offset or 0


def _docstrings(node: ast.AST) -> list[tuple[ast.Constant, bytes]]:
    """Return the strings among the statements of a body, each with what takes its place."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return []
    values = [
        each.value if isinstance(each, ast.Expr) and _begins_with(each, each.value) else each for each in body
    ]
    texts = [value for value in values if _is_constant(value, str)]
    needed = len(texts) == len(body) or isinstance(node, ast.ClassDef)
    return [(text, _DOCSTRING if needed and text is values[0] else b"") for text in texts]


def _begins_with(statement: ast.Expr, value: ast.expr) -> bool:
    """Return whether no parenthesis surrounds the value."""
    return (statement.lineno, statement.col_offset) == (value.lineno, value.col_offset)


def _is_constant(node: ast.AST, kind: type | UnionType) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, kind)


def without_unused(text: str, words: Collection[str]) -> str:
    """Return a module without unused definitions, constants and imports.

    They are unused if neither these words nor the module's other statements name them.

    Names stay that begin with a string which the module passes to `startswith`: it looks them up in itself.
    """
    tree = ast.parse(text)
    lines = text.split("\n")
    places = [range(_first_line(node) - 1, node.end_lineno or node.lineno) for node in tree.body]
    statements = Counter(number for place in places for number in place)
    prefixes = tuple(re.findall(r"\.startswith\(\s*[\"'](\w+)[\"']", text))
    known = set(words)
    waiting: list[tuple[set[str], range]] = []
    for node, place in zip(tree.body, places, strict=True):
        names = _bound(node)
        alone = all(statements[number] == 1 for number in place)
        if names and alone and not any(name.startswith(prefixes) for name in names):
            waiting.append((names - _LISTINGS, place))
        else:
            known |= _words_of(lines, place)
    while used := [(names, place) for names, place in waiting if names & known]:
        waiting = [each for each in waiting if each not in used]
        known.update(*(_words_of(lines, place) for _, place in used))
    for _, place in waiting:
        for number in place:
            lines[number] = ""
    return "\n".join(lines)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a definition binds; none for a statement that does something else too."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if not node.decorator_list:
            return {name}
        case ast.Assign(targets=targets, value=ast.Constant() | ast.Name()):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return {"__all__"}
        case ast.Import(names=names) | ast.ImportFrom(names=names) if not _is_needed(node):
            return {(alias.asname or alias.name).partition(".")[0] for alias in names}
    return set()


def _words_in(text: str) -> set[str]:
    return {*_WORD.findall(text)}


def _words_of(lines: list[str], place: range) -> set[str]:
    return {word for number in place for word in _WORD.findall(lines[number])}


def _is_needed(node: ast.stmt) -> bool:
    """Return whether an import does more than bind names that are written in it."""
    return isinstance(node, ast.ImportFrom) and (node.module == "__future__" or node.names[0].name == "*")
