"""Modules of its own that verl imports or registers and does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from verl_doctor.toolkit.collectors.api.imports import read_imports
from verl_doctor.toolkit.collectors.api.job_entries import registry
from verl_doctor.toolkit.collectors.api.use import Uses
from verl_doctor.toolkit.collectors.api.uses import Unread
from verl_doctor.toolkit.sources.python.resolve import may_be_built
from verl_doctor.toolkit.sources.python.source import ModuleFile, SourceTree, Unreadable, parse, read


def lacked(verl: SourceTree, read_modules: Iterable[Uses], name: str) -> Unread | None:
    """Return where verl imports or registers a missing module of its own; None for any other."""
    above = name.rpartition(".")[0]
    if not _is_missing(verl, name) or may_be_built(name.rpartition(".")[2]) or _is_missing(verl, above):
        return None
    around = verl.locate(above)
    source = read(around.path) if around is not None and around.kind == "package" else b""
    if isinstance(source, Unreadable) or b"__path__" in source:
        return None  # it may be installed elsewhere
    by_registry = verl.locate(registry(verl))
    path = str(by_registry.path if by_registry else verl.folder)
    found = next(_importing(read_modules, name), None) or imported_at(verl, name)
    return found or Unread(name, path, f"there is no module {name}", kind="missing")


def _is_missing(verl: SourceTree, name: str) -> bool:
    return verl.own_name(name) == name and verl.locate(name) is None


def imported_at(verl: SourceTree, name: str) -> Unread | None:
    """Return where verl imports a missing module or something below it, searching all its files."""
    for path in verl.files():
        source, own = read(path), verl.name_of(path)
        if isinstance(source, Unreadable) or not own or name.rpartition(".")[2].encode() not in source:
            continue
        tree = parse(source, path)
        if not isinstance(tree, Unreadable):
            file = ModuleFile(own, path, "package" if path.name == "__init__.py" else "module")
            with suppress(RecursionError):
                for found in _importing([read_imports(tree, file, verl)], name):
                    return found
    return None


def _importing(modules: Iterable[Uses], name: str) -> Iterator[Unread]:
    """Yield the places that import a module or something below it, as evidence that verl needs it."""
    for uses in modules:
        for entry in sorted(uses.imports, key=lambda entry: entry.conditional):
            if entry.module == name or entry.module.startswith(f"{name}."):
                reason = f"there is no module {entry.module}"
                yield Unread(entry.module, uses.path, reason, line=entry.line, kind="missing")
