"""Reading a verl tree against a vLLM tree: each use that verl makes of vLLM, on which path, and whether it is there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.api_imports import read_imports
from verl_doctor.toolkit.api_use import Use, Uses
from verl_doctor.toolkit.api_uses import read_uses
from verl_doctor.toolkit.fact_trees import Tree
from verl_doctor.toolkit.fact_vllm_uses import Unread, VllmUse, VllmUses
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.py_moved import definitions
from verl_doctor.toolkit.py_resolve import Sources
from verl_doctor.toolkit.py_source import ModuleFile, SourceTree, Unreadable, parse, read
from verl_doctor.toolkit.py_symbols import Module
from verl_doctor.toolkit.rollout_paths import Reach, condition_of, entries, reach
from verl_doctor.toolkit.secret import may_hold_secret

_WATCHED = b"vllm"
_LONGEST_QUOTE = 200  # characters


def read_trees(verl: Tree, vllm: Tree) -> VllmUses | Unknown:
    """Compare a verl tree with a vLLM tree."""
    reading = _Reading(verl, vllm)
    begin = entries(reading.verl, reading.tree)
    if not begin:
        return Absent(f"{verl.folder} has no vLLM rollout where verl keeps it")
    reached = {path: reach(modules, reading.uses) for path, modules in begin.items()}
    later = _optional(reached.values(), reading)
    found = [
        placed
        for module in sorted(later)
        if (uses := reading.uses(module)) is not None
        for placed in _placed(uses, reached, reading.read)
    ]
    missing = tuple(_quoted(reading.located([use for use in found if use.resolution != "present"])))
    return VllmUses(
        verl,
        vllm,
        missing,
        len(found) - len(missing),
        tuple(reached),
        tuple(
            replace(
                reading.unread[name], paths=tuple(path for path in reached if name in reached[path].modules)
            )
            for name in sorted(reading.unread)
        ),
    )


def _quoted(uses: Iterable[VllmUse]) -> Iterator[VllmUse]:
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
    """The two trees while they are compared. Syntax trees are dropped as soon as a module has been read."""

    def __init__(self, verl: Tree, vllm: Tree) -> None:
        self.verl = SourceTree(Path(verl.folder), verl.module, "verl", _WATCHED)
        self.vllm = SourceTree(Path(vllm.folder), vllm.module)
        self.version = vllm.version
        self.sources = Sources([self.verl, self.vllm])
        self.read: dict[str, Uses] = {}
        self.unread: dict[str, Unread] = {}

    def tree(self, name: str) -> ast.Module | None:
        """Parse a verl module. None when there is none, or none that can be read."""
        parsed = self._parsed(name)
        return parsed[0] if parsed else None

    def uses(self, name: str) -> Uses | None:
        """What a verl module uses, read once. Of a module that does not mention vLLM only the imports are read."""
        if name not in self.read:
            parsed, file = self._parsed(name), self.verl.locate(name)
            if parsed is None or file is None:
                return None
            try:
                found = self._uses(file, *parsed)
            except RecursionError:
                found = None
            if found is None:
                self.unread[name] = Unread(name, str(file.path), "it is nested too deeply")
                return None
            self.read[name] = found
        return self.read[name]

    def _uses(self, file: ModuleFile, tree: ast.Module, source: bytes) -> Uses | None:
        if _WATCHED not in source:
            return read_imports(tree, file, self.verl)
        self.sources.add(tree, file)
        module = self.sources.module(file.name)
        if not isinstance(module, Module):
            return None
        return read_uses(tree, module, self.sources, self.vllm.name, self.version)

    def _parsed(self, name: str) -> tuple[ast.Module, bytes] | None:
        file = self.verl.locate(name)
        if file is None or file.kind not in {"module", "package"}:
            return None
        source = read(file.path)
        tree = source if isinstance(source, Unreadable) else parse(source, file.path)
        if isinstance(tree, Unreadable) or isinstance(source, Unreadable):
            why = source if isinstance(source, Unreadable) else tree
            self.unread[name] = Unread(
                name, str(file.path), why.reason if isinstance(why, Unreadable) else ""
            )
            return None
        return tree, source

    def located(self, uses: list[VllmUse]) -> list[VllmUse]:
        """Say for each name that a module lacks where it is defined now, if that is one place."""
        moved = {use: name for use in uses if use.resolution == "missing" and (name := self._moved_name(use))}
        places = definitions(self.vllm, moved.values())
        return [
            replace(use, now=f"{places[moved[use]][0]}.{moved[use]}")
            if use in moved and len(places.get(moved[use], ())) == 1
            else use
            for use in uses
        ]

    def _moved_name(self, use: VllmUse) -> str:
        """The name to look for elsewhere: that of an import, or an attribute of a module."""
        if use.kind == "import":
            return use.name.rpartition(":")[2] if ":" in use.name else ""
        owner, _, name = use.name.rpartition(".")
        return name if use.kind == "attribute" and self.vllm.locate(owner) is not None else ""


def _optional(reached: Iterable[Reach], reading: _Reading) -> set[str]:
    """The modules on the paths, and those which they may import later or under a condition."""
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


def _placed(uses: Uses, reached: dict[str, Reach], everything: dict[str, Uses]) -> Iterator[VllmUse]:
    """Say for each use of a module on which paths it is run, and under which condition."""
    for use in uses.uses:
        loaded = tuple(path for path, part in reached.items() if uses.module in part.modules)
        run = tuple(
            path for path in loaded if not use.unit or f"{uses.module}:{use.unit}" in reached[path].units
        )
        if use.unit in uses.dead:
            use = replace(use, guard=use.guard or f"{use.unit}() is for other vLLM releases")  # noqa: PLW2901
        when = " and ".join(use.when)
        if use.unit and not run and use.resolution == "missing":
            when = " and ".join(filter(None, (condition_of(use.unit, uses, everything), when)))
        yield _fact(use, uses.path, loaded if when else run, when)


def _fact(use: Use, path: str, paths: tuple[str, ...], when: str) -> VllmUse:
    return VllmUse(
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
    )
