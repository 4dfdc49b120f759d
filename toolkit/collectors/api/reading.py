"""The trees of verl and its libraries while their modules are read."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.api.imports import read_imports
from verl_doctor.toolkit.collectors.api.job_entries import registry, rollout_entries
from verl_doctor.toolkit.collectors.api.missing_modules import imported_at
from verl_doctor.toolkit.collectors.api.module_uses import read_uses
from verl_doctor.toolkit.collectors.api.surroundings import Surroundings, python_release
from verl_doctor.toolkit.collectors.api.use import Uses
from verl_doctor.toolkit.collectors.api.uses import Unread
from verl_doctor.toolkit.collectors.installed.trees import Tree
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import ModuleFile, SourceTree, Unreadable, parse, read
from verl_doctor.toolkit.sources.python.symbols import Module

_STRATEGY = "actor_rollout_ref.actor.strategy"


class Reading:
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
        self._may_be_newer = not python or python_release(python) > sys.version_info[:2]

    @property
    def _strategy(self) -> str:
        """The actors' training strategy, as far as it selects modules: all other strategies use FSDP's."""
        settings = self.around.settings
        return "megatron" if settings is not None and settings.is_equal(_STRATEGY, "megatron") else "fsdp"

    def rollouts(self, library: str) -> dict[str, tuple[str, ...]] | Unknown:
        """Return the modules with which the paths of this library's rollout begin.

        Absent if verl has no such rollout.
        """
        begin = rollout_entries(
            self.verl,
            self.tree,
            lambda name: imported_at(self.verl, name) is not None,
            library,
            self._strategy,
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
