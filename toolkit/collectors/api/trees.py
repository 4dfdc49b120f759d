"""Comparison of a verl tree with a library's: each use, on which path, and whether it exists."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar

from verl_doctor.toolkit.collectors.api.demand import Demand
from verl_doctor.toolkit.collectors.api.helpers import Helpers
from verl_doctor.toolkit.collectors.api.imports import read_imports
from verl_doctor.toolkit.collectors.api.inside import misses_inside
from verl_doctor.toolkit.collectors.api.job_entries import (
    BACKENDS,
    registry,
    rollout_entries,
    trainer_entries,
)
from verl_doctor.toolkit.collectors.api.job_paths import Reach, condition_of, reach, unmet
from verl_doctor.toolkit.collectors.api.module_uses import read_uses
from verl_doctor.toolkit.collectors.api.use import Use, Uses
from verl_doctor.toolkit.collectors.api.uses import ApiUse, ApiUses, LibraryUses, Unread
from verl_doctor.toolkit.collectors.api.value import Surroundings
from verl_doctor.toolkit.collectors.api.values import ValueReader
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.process.gc_pause import paused_collection
from verl_doctor.toolkit.sources.python.moved import definitions
from verl_doctor.toolkit.sources.python.resolve import Sources, may_be_built
from verl_doctor.toolkit.sources.python.source import (
    ModuleFile,
    SourceTree,
    Unreadable,
    parse,
    read,
    walk,
)
from verl_doctor.toolkit.sources.python.summary import absolute
from verl_doctor.toolkit.sources.python.symbols import Module
from verl_doctor.toolkit.system.secret import may_hold_secret

_Answer = TypeVar("_Answer", bound=ApiUses)
_STRATEGY = "actor_rollout_ref.actor.strategy"
_LONGEST_QUOTE = 200  # characters
_MOST_STARS = 3
# A name that a module binds plainly, at the left margin or in a list of imports.
_BOUND = rb"(?m)^(?:(?:async )?def |class |from [^\n]*|import [^\n]*)?\b%b\b"
# Ways in which a module may have names that reading does not reveal.
_OTHERWISE_BOUND = re.compile(
    rb"__getattr__(?!\(self\b)|\b(?:globals|locals|vars)\(\)|\bexec\(|\bsys\.modules\b"
    rb"|\bimport_module\(__name__|\bgetmodule\("
)
# Kinds of break that occur when the function is run. The other kinds concern whole classes.
_CALLED = frozenset(
    {
        "attribute",
        "final",
        "import",
        "keyword",
        "meaning",
        "option",
        "patch",
        "positional",
        "required",
        "sent",
        "store",
    }
)


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
    reading = _Reading(verl, (library,), python, replace(around, python=python))
    begin = reading.rollouts(library.module)
    if isinstance(begin, Unknown):
        return begin
    reached = {path: reach(modules, reading.uses) for path, modules in begin.items()}
    found = list(reading.demanded(_found(reached, reading), begin))
    found += _inside(library, found, around.beside)
    unread = (*_unread(reached, reading), *_unread_of(library, reached, reading))
    return _answer(fact, verl, library, found, reached, unread, reading)


@paused_collection()
def read_libraries(verl: Tree, libraries: Iterable[Tree], python: str = "") -> LibraryUses | Unknown:
    """Compare a verl tree with the trees of several libraries, on all paths of a job, in one reading.

    The rollouts are vLLM's, which most jobs run, and those whose library is among the trees.
    """
    trees = tuple(libraries)
    reading = _Reading(verl, trees, python, Surroundings())
    begin = trainer_entries(reading.verl, reading.tree)
    for backend in BACKENDS:
        if backend == "vllm" or backend in reading.libraries:
            rollouts = reading.rollouts(backend)
            begin |= {} if isinstance(rollouts, Unknown) else rollouts
    if not begin:
        return Absent(f"{verl.folder} has neither a trainer nor a rollout in verl's usual places")
    reached = {path: reach(modules, reading.uses) for path, modules in begin.items()}
    found = list(_found(reached, reading))
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


def _found(reached: dict[str, Reach], reading: _Reading) -> Iterator[ApiUse]:
    """Yield every use in the modules that the paths run or may load later.

    Names that verl itself sets do not count as missing.
    """
    modules = sorted(_optional(reached.values(), reading))
    every = [uses for module in modules if (uses := reading.uses(module)) is not None]
    patched: dict[str, set[str]] = {}
    for uses in every:
        for name in uses.patched:
            patched.setdefault(name, set()).add(uses.module)
    for uses in every:
        for use in _placed(uses, reached, reading):
            missed = use.kind == "attribute" and use.resolution == "missing"
            by_others = patched.get(use.name, set()) - {uses.module} if missed else None
            yield replace(use, resolution="unknown", reason="verl itself sets it") if by_others else use


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
    reading: _Reading,
) -> _Answer:
    absent = reading.located(library, [use for use in found if use.resolution != "present"])
    missing = tuple(_quoted(_ordered(absent)))
    settings = reading.around.settings
    consulted = () if settings is None else tuple(sorted(set(settings.consulted)))
    return fact(verl, library, missing, len(found) - len(missing), tuple(reached), unread, consulted)


def _unread(reached: Mapping[str, Reach], reading: _Reading) -> Iterator[Unread]:
    """Yield unreadable or missing modules of verl, each once, with the paths that fail as a result."""
    loaded = {
        name: tuple(path for path in reached if name in reached[path].modules)
        for name in sorted({name for part in reached.values() for name in part.modules})
    }
    for entry in {entry.path: entry for _, entry in sorted(reading.unread.items())}.values():
        yield replace(entry, paths=loaded.get(entry.module, ()))
    for name, paths in loaded.items():
        if (lacking := reading.lacks(name)) is not None:
            yield replace(lacking, paths=paths)
        yield from _unbound(name, paths, reached, reading)


def _unbound(
    module: str, paths: tuple[str, ...], reached: Mapping[str, Reach], reading: _Reading
) -> Iterator[Unread]:
    """Yield the names that a module imports from other modules of verl that do not bind them."""
    uses = reading.uses(module)
    for entry in uses.imports if uses is not None else ():
        run = tuple(
            path for path in paths if not entry.unit or f"{module}:{entry.unit}" in reached[path].units
        )
        if uses is None or not entry.name or not run or entry.conditional:
            continue
        if reading.is_unbound(entry.module, entry.name):
            reason = f"{entry.module} has no {entry.name}"
            yield Unread(f"{entry.module}.{entry.name}", uses.path, reason, run, entry.line, "missing")


def _unread_of(library: Tree, reached: Mapping[str, Reach], reading: _Reading) -> Iterator[Unread]:
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


class _Reading:
    """The trees while they are compared. A syntax tree is dropped as soon as its module has been read."""

    def __init__(self, verl: Tree, libraries: tuple[Tree, ...], python: str, around: Surroundings) -> None:
        self.around = around
        self.libraries = {tree.module: SourceTree(Path(tree.folder), tree.module) for tree in libraries}
        self.versions = {tree.module: tree.version for tree in libraries}
        self.verl = SourceTree(Path(verl.folder), verl.module, "verl", tuple(self.libraries))
        self.sources = Sources([self.verl, *self.libraries.values()])
        self.read: dict[str, Uses] = {}
        self._whole: dict[str, Uses | None] = {}
        self.unread: dict[str, Unread] = {}
        self.needed: dict[str, set[str]] = {}
        self._may_be_newer = not python or _release(python) > sys.version_info[:2]

    @property
    def strategy(self) -> str:
        """The actors' training strategy, as far as it selects modules: all other strategies use FSDP's."""
        settings = self.around.settings
        return "megatron" if settings is not None and settings.is_equal(_STRATEGY, "megatron") else "fsdp"

    def rollouts(self, library: str) -> dict[str, tuple[str, ...]] | Unknown:
        """Return the modules with which the paths of this library's rollout begin.

        Absent if verl has no such rollout.
        """
        begin = rollout_entries(
            self.verl, self.tree, lambda name: self.imported_at(name) is not None, library, self.strategy
        )
        unseen = self.unread.get(registry(self.verl))
        if unseen is not None and unseen.kind != "syntax":
            return Unknown(f"the rollouts of this verl are unknown: {unseen.reason}")
        return begin or Absent(f"{self.verl.folder} has no rollout with {library} in verl's usual place")

    def tree(self, name: str) -> ast.Module | None:
        """Parse a verl module; None if it is missing or unreadable."""
        parsed = self._parsed(name)
        return parsed[0] if parsed else None

    def uses(self, name: str) -> Uses | None:
        """Return the uses of a verl module, read once.

        If it mentions no library, only its imports are read.
        """
        if name not in self.read:
            parsed, file = self._parsed(name), self.verl.locate(name)
            if parsed is None or file is None:
                return None
            try:
                found = self._uses(file, *parsed)
            except RecursionError:
                found = None
            if found is None:
                self.unread[name] = Unread(name, str(file.path), "it is nested too deeply", kind="reader")
                return None
            self.read[name] = found
        return self.read[name]

    def whole(self, name: str) -> Uses | None:
        """Like `uses`, with everything that a module mentions even if it mentions no library."""
        if name not in self._whole:
            parsed, file = self._parsed(name), self.verl.locate(name)
            try:
                self._whole[name] = self._uses(file, parsed[0], None) if parsed and file else None
            except RecursionError:
                self._whole[name] = None
        return self._whole[name]

    def demanded(self, found: Iterable[ApiUse], begin: Mapping[str, tuple[str, ...]]) -> Iterator[ApiUse]:
        """Add the condition to each break in a function that is never called with the job's settings."""
        settings = self.around.settings
        entries = [name.partition(":")[0] for modules in begin.values() for name in modules]
        demand = Demand(self.verl, settings, self.whole, entries) if settings is not None else None
        for use in found:
            when = ""
            if (
                demand is not None
                and use.breaks
                and use.unit
                and use.paths
                and not use.when
                and use.kind in _CALLED
            ):
                owner, _, last = use.unit.rpartition(".")
                when = demand.condition(owner if owner and last.startswith("__") else last)
            off = bool(when) and settings is not None and settings.chosen
            yield replace(use, when=when, off=off) if when else use

    def _uses(self, file: ModuleFile, tree: ast.Module, source: bytes | None) -> Uses | None:
        if source is not None and not self.verl.concerns(source):
            return read_imports(tree, file, self.verl)
        self.sources.add(tree, file)
        module = self.sources.module(file.name)
        if not isinstance(module, Module):
            return None
        return read_uses(tree, module, self.sources, self.versions, self.around)

    def _parsed(self, name: str) -> tuple[ast.Module, bytes] | None:
        file = self.verl.locate(name)
        if file is not None and file.kind == "hidden":
            self.unread[name] = self.described(file, Unreadable(file.why))
        if file is None or file.kind not in {"module", "package"}:
            return None
        source = read(file.path)
        tree = parse(source, file.path) if isinstance(source, bytes) else source
        if source == b"" and file.kind == "module":  # left by a full disk; verl has no such module
            tree = Unreadable(f"{file.path} is empty", "file")
        if isinstance(tree, Unreadable):
            self.unread[name] = self.described(file, tree)
        return (tree, source) if isinstance(tree, ast.Module) and isinstance(source, bytes) else None

    def described(self, file: ModuleFile, why: Unreadable) -> Unread:
        """Return the description of an unreadable file. Its syntax may be newer than the doctor's Python."""
        kind: Literal["syntax", "file", "reader"] = "syntax"
        if why.by == "file":
            kind = "file"
        elif why.by == "reader" or (why.by == "syntax" and self._may_be_newer):
            kind = "reader"
        return Unread(file.name, str(file.path), why.reason, line=why.line, kind=kind)

    def is_unbound(self, module: str, name: str, stars: int = _MOST_STARS) -> bool:
        """Whether a module of verl certainly does not bind a name that another module imports from it.

        At most so many star imports are followed, one behind the other.
        """
        file = self.verl.locate(module)
        if (
            file is None
            or file.kind not in {"module", "package"}
            or self.verl.locate(f"{module}.{name}") is not None
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
        if not all(self._passes_over(star, name, stars) for star in _stars(tree, file)):
            return False
        self.sources.add(tree, file)
        found = self.sources.module(module)
        reader = (
            ValueReader(self.sources, found, self.versions, self.around)
            if isinstance(found, Module)
            else None
        )
        return reader is not None and Helpers(reader, tree).is_unbound(module, name)

    def _passes_over(self, star: str, name: str, stars: int) -> bool:
        """Whether `from star import *` certainly does not bind a name."""
        file = self.verl.locate(star)
        source = read(file.path) if file is not None and file.kind in {"module", "package"} else None
        if not isinstance(source, bytes) or not stars:
            return False
        private = name.startswith("_") and b"__all__" not in source
        return private or self.is_unbound(star, name, stars - 1)

    def lacks(self, name: str) -> Unread | None:
        """Return where verl imports or registers a missing module of its own; None for any other."""
        above = name.rpartition(".")[0]
        if not self._is_missing(name) or may_be_built(name.rpartition(".")[2]) or self._is_missing(above):
            return None
        around = self.verl.locate(above)
        source = read(around.path) if around is not None and around.kind == "package" else b""
        if isinstance(source, Unreadable) or b"__path__" in source:
            return None  # it may be installed elsewhere
        by_registry = self.verl.locate(registry(self.verl))
        path = str(by_registry.path if by_registry else self.verl.folder)
        found = next(_importing(self.read.values(), name), None) or self.imported_at(name)
        return found or Unread(name, path, f"there is no module {name}", kind="missing")

    def _is_missing(self, name: str) -> bool:
        return self.verl.own_name(name) == name and self.verl.locate(name) is None

    def imported_at(self, name: str) -> Unread | None:
        """Return where verl imports a missing module or something below it, searching all its files."""
        for path in self.verl.files():
            source, own = read(path), self.verl.name_of(path)
            if isinstance(source, Unreadable) or not own or name.rpartition(".")[2].encode() not in source:
                continue
            tree = parse(source, path)
            if not isinstance(tree, Unreadable):
                file = ModuleFile(own, path, "package" if path.name == "__init__.py" else "module")
                with suppress(RecursionError):
                    for found in _importing([read_imports(tree, file, self.verl)], name):
                        return found
        return None

    def located(self, library: Tree, uses: list[ApiUse]) -> list[ApiUse]:
        """Add to each name that a module lacks the place where it is defined now, if there is exactly one."""
        tree = self.libraries[library.module]
        moved = {
            use: name for use in uses if use.resolution == "missing" and (name := _moved_name(use, tree))
        }
        places = definitions(tree, moved.values())
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


def _stars(tree: ast.Module, file: ModuleFile) -> Iterator[str]:
    """The modules from which a module imports everything."""
    for node in walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield absolute(node, file.package)


def _optional(reached: Iterable[Reach], reading: _Reading) -> set[str]:
    """Return the modules on the paths, and those they may import later or conditionally."""
    on_paths = {module for part in reached for module in part.modules}
    found: set[str] = set()
    waiting = sorted(on_paths)
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.add(module)
        uses = reading.uses(module)
        if uses is not None and (module in on_paths or uses.uses):
            waiting += [entry.module for entry in uses.imports if not entry.guarded]
    return found


def _importing(modules: Iterable[Uses], name: str) -> Iterator[Unread]:
    """Yield the places that import a module or something below it, as evidence that verl needs it."""
    for uses in modules:
        for entry in sorted(uses.imports, key=lambda entry: entry.conditional):
            if entry.module == name or entry.module.startswith(f"{name}."):
                reason = f"there is no module {entry.module}"
                yield Unread(entry.module, uses.path, reason, line=entry.line, kind="missing")


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a Python version."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _placed(uses: Uses, reached: dict[str, Reach], reading: _Reading) -> Iterator[ApiUse]:
    """Add to each use of a module the paths that run it, and under which condition."""
    for use in uses.uses:
        loaded = tuple(path for path, part in reached.items() if uses.module in part.modules)
        if use.kind == "sent" and not loaded:
            continue  # may be sent to the workers of another engine
        run = tuple(
            path for path in loaded if not use.unit or f"{uses.module}:{use.unit}" in reached[path].units
        )
        if use.unit in uses.dead:
            use = replace(use, guard=use.guard or f"{use.unit}() is for other releases")  # noqa: PLW2901
        certain = tuple(path for path in run if not unmet(use.when, reached[path].sent))
        when = "" if certain else " and ".join(use.when)
        off = bool(when) and any((use.unit, condition) in uses.off for condition in use.when)
        settings = reading.around.settings
        if use.unit and not run and use.resolution == "missing":
            called, never = condition_of(use.unit, uses, reading.read)
            plain = called == f"{use.unit.rpartition('.')[2]}() is called"
            switched_on = settings is not None and settings.has_part(f"{uses.module}.{use.unit}")
            if plain and switched_on and _is_mentioned(use.unit, uses, frozenset({use.unit})):
                # The part that the script switches on calls it, or puts it in place of a function of vLLM.
                called = ""
                certain = loaded if not use.when else ()
            when, off = " and ".join(filter(None, (called, when))), off or never
        for module in use.unread if not use.guard else ():
            reading.needed.setdefault(module, set()).update(certain)
        off = settings is not None and settings.chosen and (off or settings.leaves_out(uses.module))
        yield _fact(use, uses.path, loaded if when else certain, when, off=bool(when) and off)


def _is_mentioned(unit: str, uses: Uses, seen: frozenset[str]) -> bool:
    """Return whether a function is mentioned in its module, other than by itself.

    Mentions by code that only other releases reach do not count either.
    """
    if not unit:
        return True
    name = unit.rpartition(".")[2]
    above = {other for other, names in uses.mentions.items() if name in names} - seen
    apart = seen | above
    # What nothing in the module mentions is called from other modules.
    return any(
        other not in uses.dead and (_is_mentioned(other, uses, apart) or not _names(other, uses))
        for other in above
    )


def _names(unit: str, uses: Uses) -> bool:
    """Return whether anything in the module mentions a function."""
    name = unit.rpartition(".")[2]
    return any(name in names for other, names in uses.mentions.items() if other != unit)


def _fact(use: Use, path: str, paths: tuple[str, ...], when: str, *, off: bool) -> ApiUse:
    return ApiUse(
        path=path,
        line=use.line,
        kind=use.kind,
        name=use.name,
        resolution=use.resolution,
        phase="start" if use.unit else "import",
        paths=paths,
        when=when,
        guard=use.guard,
        now=use.nearest,
        reason=use.reason,
        read_from=use.read_from,
        column=use.column,
        handler=use.handler,
        off=off,
        unit=use.unit,
    )
