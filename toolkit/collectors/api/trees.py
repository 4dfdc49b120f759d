"""Comparison of a verl tree with a library's: each use, on which path, and whether it exists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from verl_doctor.toolkit.collectors.api.inside import misses_inside
from verl_doctor.toolkit.collectors.api.job_entries import (
    BACKENDS,
    trainer_entries,
)
from verl_doctor.toolkit.collectors.api.job_paths import Reach, reach
from verl_doctor.toolkit.collectors.api.missing_modules import lacked
from verl_doctor.toolkit.collectors.api.placed_uses import demanded, placed_uses
from verl_doctor.toolkit.collectors.api.reading import Reading
from verl_doctor.toolkit.collectors.api.surroundings import Surroundings
from verl_doctor.toolkit.collectors.api.unbound_names import unbound_names
from verl_doctor.toolkit.collectors.api.uses import ApiUse, ApiUses, LibraryUses, Unread
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.process.gc_pause import paused_collection
from verl_doctor.toolkit.sources.python.moved import definitions
from verl_doctor.toolkit.sources.python.source import (
    SourceTree,
    Unreadable,
    read,
)
from verl_doctor.toolkit.system.secret import may_hold_secret

_Answer = TypeVar("_Answer", bound=ApiUses)
_LONGEST_QUOTE = 200  # characters


@paused_collection()
def read_trees(
    fact: type[_Answer],
    verl: Tree,
    library: Tree,
    python: str = "",
    around: Surroundings = Surroundings(),  # noqa: B008 - it is frozen
) -> _Answer | Unknown:
    """Compare a verl tree with a rollout library's tree, on that rollout's paths; the result is a `fact`.

    `python` is the version that will run them, "" if unknown.
    """
    reading = Reading(verl, (library,), python, replace(around, python=python))
    begin = reading.rollouts(library.module)
    if isinstance(begin, Unknown):
        return begin
    reached = {path: reach(modules, reading.uses) for path, modules in begin.items()}
    found = list(demanded(placed_uses(reached, reading), begin, reading))
    found += _inside(library, found, around.beside)
    unread = (*_unread(reached, reading), *_unread_of(library, reached, reading))
    return _answer(fact, verl, library, found, reached, unread, reading)


@paused_collection()
def read_libraries(verl: Tree, libraries: Iterable[Tree], python: str = "") -> LibraryUses | Unknown:
    """Compare a verl tree with the trees of several libraries, on all paths of a job, in one reading.

    The rollouts are vLLM's, which most jobs run, and those whose library is among the trees.
    """
    trees = tuple(libraries)
    reading = Reading(verl, trees, python, Surroundings())
    begin = trainer_entries(reading.verl, reading.tree)
    for backend in BACKENDS:
        if backend == "vllm" or backend in reading.libraries:
            rollouts = reading.rollouts(backend)
            begin |= {} if isinstance(rollouts, Unknown) else rollouts
    if not begin:
        return Absent(f"{verl.folder} has neither a trainer nor a rollout in verl's usual places")
    reached = {path: reach(modules, reading.uses) for path, modules in begin.items()}
    found = list(placed_uses(reached, reading))
    answers = [
        _answer(
            ApiUses,
            verl,
            library,
            [use for use in found if _package(use) == library.module],
            reached,
            tuple(_unread_of(library, reached, reading)),
            reading,
        )
        for library in trees
    ]
    return LibraryUses(verl, tuple(answers), tuple(reached), tuple(_unread(reached, reading)))


def _inside(library: Tree, found: list[ApiUse], beside: Iterable[Tree]) -> Iterator[ApiUse]:
    """The names that the library's own modules, as far as the paths load them, fail to import."""
    starts: dict[str, set[str]] = {}
    for use in found:
        if use.kind == "import" and use.resolution == "present" and not use.when and not use.guard:
            for path in use.paths:
                starts.setdefault(path, set()).add(use.name.partition(":")[0])
    others = {other.module: other for other in beside}
    trees = [SourceTree(Path(tree.folder), tree.module) for tree in (library, *others.values())]
    for miss in misses_inside(trees[0], starts, trees[1:]) if starts else ():
        other = others.get(re.split("[.:]", miss.name, maxsplit=1)[0], library)
        yield ApiUse(
            miss.path,
            miss.line,
            "inside",
            miss.name,
            "missing",
            "import",
            miss.paths,
            reason=f"{miss.reason} in {other.module} {other.version}".rstrip(),
            read_from=miss.read_from,
            column=miss.column,
        )


def _package(use: ApiUse) -> str:
    """Return the top-level package that is used."""
    return re.split("[.:]", use.name, maxsplit=1)[0]


def _answer(
    fact: type[_Answer],
    verl: Tree,
    library: Tree,
    found: list[ApiUse],
    reached: Mapping[str, Reach],
    unread: tuple[Unread, ...],
    reading: Reading,
) -> _Answer:
    absent = _located(
        reading.libraries[library.module], [use for use in found if use.resolution != "present"]
    )
    missing = tuple(_quoted(_ordered(absent)))
    settings = reading.around.settings
    consulted = () if settings is None else tuple(sorted(set(settings.consulted)))
    return fact(verl, library, missing, len(found) - len(missing), tuple(reached), unread, consulted)


def _unread(reached: Mapping[str, Reach], reading: Reading) -> Iterator[Unread]:
    """Yield unreadable or missing modules of verl, each once, with the paths that fail as a result."""
    loaded = {
        name: tuple(path for path in reached if name in reached[path].modules)
        for name in sorted({name for part in reached.values() for name in part.modules})
    }
    for entry in {entry.path: entry for _, entry in sorted(reading.unread.items())}.values():
        yield replace(entry, paths=loaded.get(entry.module, ()))
    for name, paths in loaded.items():
        if (lacking := lacked(reading.verl, reading.read.values(), name)) is not None:
            yield replace(lacking, paths=paths)
        yield from unbound_names(name, paths, reached, reading)


def _unread_of(library: Tree, reached: Mapping[str, Reach], reading: Reading) -> Iterator[Unread]:
    """Yield the unreadable modules of a library, each once, with the paths that import them."""
    blamed: dict[str, tuple[Unread, set[str]]] = {}
    for name, (file, why) in sorted(reading.sources.unread.items()):
        if reading.libraries[library.module].own_name(name) == name:
            entry = reading.described(file, why)
            blamed.setdefault(entry.path, (entry, set()))[1].update(reading.needed.get(name, ()))
    for entry, stopped in blamed.values():
        yield replace(entry, paths=tuple(path for path in reached if path in stopped))


def _ordered(uses: list[ApiUse]) -> Iterator[ApiUse]:
    """Add to each break at engine start a failing import that precedes it, if each of its paths has one."""
    first: dict[str, str] = {}
    for use in uses:
        if use.breaks and use.phase == "import" and not use.when and use.kind != "distribution":
            for path in use.paths:
                first.setdefault(path, f"{use.path}:{use.line}")
    for use in uses:
        before = {first.get(path, "") for path in use.paths} if use.phase == "start" and use.breaks else {""}
        yield replace(use, behind=min(before)) if before and "" not in before else use


def _quoted(uses: Iterable[ApiUse]) -> Iterator[ApiUse]:
    """Add the source lines."""
    lines: dict[str, list[str]] = {}
    for use in uses:
        if use.path not in lines:
            source = read(Path(use.path))
            text = "" if isinstance(source, Unreadable) else source.decode("utf-8", "replace")
            lines[use.path] = text.splitlines()
        line = "".join(lines[use.path][use.line - 1 : use.line]).strip()
        yield replace(use, text="" if may_hold_secret(line) else line[:_LONGEST_QUOTE])


def _located(library: SourceTree, uses: list[ApiUse]) -> list[ApiUse]:
    """Add to each name that a module lacks the place where it is defined now, if there is exactly one."""
    moved = {use: name for use in uses if use.resolution == "missing" and (name := _moved_name(use, library))}
    places = definitions(library, moved.values())
    return [
        replace(use, now=f"{places[moved[use]][0]}.{moved[use]}")
        if use in moved and len(places.get(moved[use], ())) == 1
        else use
        for use in uses
    ]


def _moved_name(use: ApiUse, library: SourceTree) -> str:
    """Return the name to look for elsewhere: the imported name, or an attribute of a module."""
    if use.kind == "import":
        return use.name.rpartition(":")[2] if ":" in use.name else ""
    owner, _, name = use.name.rpartition(".")
    return name if use.kind == "attribute" and library.locate(owner) is not None else ""
