"""Packages that replace themselves by a lazy module: the names that it serves, and their modules.

The convention is transformers': `sys.modules[__name__] = _LazyModule(name, file, structure)`. The structure
is a literal dict of submodules and their names, filled in several steps, or it is computed from the `__all__`
of the files below the package (huggingface/transformers#31329), or both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.sources.python.source import SourceTree, Unreadable, dotted, read, statements
from verl_doctor.toolkit.sources.python.summary_class import is_type_checking
from verl_doctor.toolkit.sources.python.symbols import Lazy

_COMPUTES = "define_import_structure"
_STRUCTURE = 2  # the argument's place in _LazyModule(name, file, structure)
_EXPORTS = re.compile(rb"\n__all__\s*(?:\+?=|\.extend\(|:)[^\[(]*[\[(](?P<names>[^\])]*)")
_DECORATED = re.compile(
    rb"^@(?:requires|export)\b[^\n]*(?:\n(?!class\b|def\b)[^\n]*)*?\n(?:class|def) (?P<name>\w+)",
    re.MULTILINE,
)
_QUOTED = re.compile(rb"""["'](\w+)["']""")
# These files are not part of the package's interface: the code that computes the structure leaves them out.
_LEFT_OUT = ("__init__", "convert_", "modular_")


@dataclass
class _Structure:
    """One variable's content in the module: names with submodules, folders to search, other variables."""

    names: dict[str, str] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)
    includes: set[str] = field(default_factory=set)
    known: bool = True


def lazy_module(tree: ast.Module) -> Lazy | None:
    """Return the names that the lazy module serves; None when the module does not replace itself."""
    argument = next(filter(None, map(_made_lazy, statements(tree))), None)
    if argument is None:
        return None
    structures: dict[str, _Structure] = {}
    _read(tree.body, structures)
    whole = _Structure()
    _assign(whole, argument)
    _include(whole, structures, set())
    return Lazy(whole.names, whole.known, tuple(dict.fromkeys(whole.computed)))


def _made_lazy(node: ast.AST) -> ast.expr | None:
    """Return the structure in `sys.modules[__name__] = _LazyModule(name, file, structure)`."""
    match node:
        case ast.Assign(
            targets=[ast.Subscript(value=modules, slice=ast.Name(id="__name__"))],
            value=ast.Call(func=made_by, args=[*given]),
        ) if dotted(modules) == "sys.modules" and dotted(made_by).endswith("LazyModule"):
            return given[_STRUCTURE] if len(given) > _STRUCTURE else None
    return None


def _read(body: Iterable[ast.stmt], structures: dict[str, _Structure]) -> None:
    """Follow the statements that build structures.

    Exception handlers are left out: they only add placeholders.
    """
    for node in body:
        match node:
            case ast.If(test=test) if is_type_checking(test):
                _read(node.orelse, structures)
            case ast.If() | ast.Try():
                for part in ("body", "orelse", "finalbody"):
                    _read(getattr(node, part, ()), structures)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                structure = structures.setdefault(name, _Structure())
                _assign(structure, value)
            case (
                ast.Assign(targets=[ast.Subscript() as target], value=value)
                | ast.AugAssign(target=ast.Subscript() as target, value=value)
            ):
                _add(structures, target, value)
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=target, attr="append" | "extend" | "update"), args=[value]
                )
            ):
                _add(structures, target, value)


def _assign(structure: _Structure, value: ast.expr) -> None:
    """Evaluate `structure = {...}`, another structure, a copy, or a computed structure."""
    match value:
        case ast.Dict(keys=keys, values=values):
            for key, names in zip(keys, values, strict=True):
                _serve(structure, key, names)
        case ast.Name(id=other):
            structure.includes.add(other)
        case ast.DictComp(
            generators=[ast.comprehension(iter=ast.Call(func=ast.Attribute(value=ast.Name(id=other))))]
        ):
            structure.includes.add(other)
        case ast.Call(func=function, keywords=keywords) if dotted(function).rpartition(".")[2] == _COMPUTES:
            prefixes = [given.value for given in keywords if given.arg == "prefix"]
            folder = prefixes[0].value if prefixes and isinstance(prefixes[0], ast.Constant) else ""
            structure.computed.append(str(folder))
        case _:
            structure.known = False


def _add(structures: dict[str, _Structure], target: ast.expr, value: ast.expr) -> None:
    """Apply a statement that changes a structure.

    These are `structure["module"] = [...]`, `structure["module"].append("Name")`,
    `structure[anything].update(structure)`.
    """
    match target:
        case ast.Subscript(value=ast.Name(id=name), slice=key) if name in structures:
            if isinstance(value, ast.Name):
                structures[name].includes.add(value.id)
            else:
                _serve(structures[name], key, value)
        case ast.Name(id=name) if name in structures:
            _assign(structures[name], value)


def _serve(structure: _Structure, key: ast.expr | None, names: ast.expr) -> None:
    texts = list(_texts(names))
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or None in texts:
        structure.known = False
        return
    structure.names |= {str(text): f".{key.value}:{text}" for text in texts}


def _texts(node: ast.expr) -> Iterator[str | None]:
    """Yield the strings of a literal; None for anything else."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        for element in node.elts:
            yield from _texts(element)
    else:
        yield node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _include(whole: _Structure, structures: Mapping[str, _Structure], seen: set[str]) -> None:
    while more := whole.includes - seen:
        name = more.pop()
        seen.add(name)
        part = structures.get(name, _Structure(known=False))
        whole.names |= part.names
        whole.computed += part.computed
        whole.includes |= part.includes
        whole.known = whole.known and part.known


def exports(tree: SourceTree, package: str) -> dict[str, str]:
    """Return the names that the files below a package export, each with its module, found without parsing."""
    found: dict[str, str] = {}
    for path in tree.files(package):
        module = tree.name_of(path)
        source = b"" if path.name.startswith(_LEFT_OUT) else read(path)
        if module is None or isinstance(source, Unreadable) or not source:
            continue
        first = source.find(b"\n__all__")
        for match in _EXPORTS.finditer(source, first) if first >= 0 else ():
            found |= {name.decode(): module for name in _QUOTED.findall(match["names"])}
        if b"\n@requires" in source or b"\n@export" in source:
            found |= {match["name"].decode(): module for match in _DECORATED.finditer(source)}
    return found


def modules_made(tree: ast.Module, name: str) -> tuple[str, ...]:
    """Return patterns of the modules that this one creates at run time.

    It creates them by its own function that writes to `sys.modules`.

    transformers 5 does this for renamed modules: `_create_module_alias(f"{__name__}.tokenization_utils",
    ...)`.
    """
    makers = {
        node.name for node in statements(tree) if isinstance(node, ast.FunctionDef) and _makes_modules(node)
    }
    if not makers:
        return ()
    found = []
    for node in statements(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id=function), args=[first, *_])) if function in makers:
                found.append(_pattern(first, name))
    return tuple(dict.fromkeys(found))


def _makes_modules(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(target, ast.Subscript) and dotted(target.value) == "sys.modules"
        for node in statements(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
    )


def _pattern(node: ast.expr, name: str) -> str:
    """Return a regular expression for the text that an expression yields."""
    match node:
        case ast.Constant(value=str(text)):
            return re.escape(text)
        case ast.JoinedStr(values=values):
            return "".join(_pattern(part, name) for part in values)
        case ast.FormattedValue(value=ast.Name(id="__name__")):
            return re.escape(name)
    return r"[\w.]+"
