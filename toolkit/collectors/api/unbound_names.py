"""Names that a module of verl imports from another one that does not bind them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from verl_doctor.toolkit.collectors.api.helpers import Helpers
from verl_doctor.toolkit.collectors.api.job_paths import Reach
from verl_doctor.toolkit.collectors.api.reading import Reading
from verl_doctor.toolkit.collectors.api.uses import Unread
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.sources.python.resolve import may_be_built
from verl_doctor.toolkit.sources.python.source import ModuleFile, Unreadable, parse, read, walk
from verl_doctor.toolkit.sources.python.summary import absolute
from verl_doctor.toolkit.sources.python.symbols import Module

_MOST_STARS = 3
# A name that a module binds plainly, at the left margin or in a list of imports.
_BOUND = rb"(?m)^(?:(?:async )?def |class |from [^\n]*|import [^\n]*)?\b%b\b"
# Ways in which a module may have names that reading does not reveal.
_OTHERWISE_BOUND = re.compile(
    rb"__getattr__(?!\(self\b)|\b(?:globals|locals|vars)\(\)|\bexec\(|\bsys\.modules\b"
    rb"|\bimport_module\(__name__|\bgetmodule\("
)


def unbound_names(
    module: str, paths: tuple[str, ...], reached: Mapping[str, Reach], reading: Reading
) -> Iterator[Unread]:
    """Yield the names that a module imports from other modules of verl that do not bind them."""
    uses = reading.uses(module)
    for entry in uses.imports if uses is not None else ():
        run = tuple(
            path for path in paths if not entry.unit or f"{module}:{entry.unit}" in reached[path].units
        )
        if uses is None or not entry.name or not run or entry.conditional:
            continue
        if _is_unbound(reading, entry.module, entry.name):
            reason = f"{entry.module} has no {entry.name}"
            yield Unread(f"{entry.module}.{entry.name}", uses.path, reason, run, entry.line, "missing")


def _is_unbound(reading: Reading, module: str, name: str, stars: int = _MOST_STARS) -> bool:
    """Whether a module of verl certainly does not bind a name that another module imports from it.

    At most so many star imports are followed, one behind the other.
    """
    file = reading.verl.locate(module)
    if (
        file is None
        or file.kind not in {"module", "package"}
        or reading.verl.locate(f"{module}.{name}") is not None
    ):
        return False
    source = read(file.path)
    if isinstance(source, Unreadable) or re.search(_BOUND % re.escape(name.encode()), source):
        return False
    tree = parse(source, file.path)
    if isinstance(tree, Unreadable) or not tree.body:
        return False
    if file.kind == "package" and may_be_built(name):
        return False
    if _OTHERWISE_BOUND.search(source):
        return False
    if not all(_passes_over(reading, star, name, stars) for star in _stars(tree, file)):
        return False
    reading.sources.add(tree, file)
    found = reading.sources.module(module)
    reader = (
        ValueReader(reading.sources, found, reading.versions, reading.around)
        if isinstance(found, Module)
        else None
    )
    return reader is not None and Helpers(reader, tree).is_unbound(module, name)


def _passes_over(reading: Reading, star: str, name: str, stars: int) -> bool:
    """Whether `from star import *` certainly does not bind a name."""
    file = reading.verl.locate(star)
    source = read(file.path) if file is not None and file.kind in {"module", "package"} else None
    if not isinstance(source, bytes) or not stars:
        return False
    private = name.startswith("_") and b"__all__" not in source
    return private or _is_unbound(reading, star, name, stars - 1)


def _stars(tree: ast.Module, file: ModuleFile) -> Iterator[str]:
    """The modules from which a module imports everything."""
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield absolute(node, file.package)
