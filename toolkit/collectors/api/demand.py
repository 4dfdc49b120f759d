"""Whether a job ever calls a function of verl, following callers through verl as far as settings decide."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.collectors.api.settings import Settings
from verl_doctor.toolkit.collectors.api.use import Uses
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.source import (
    ModuleFile,
    SourceTree,
    Unreadable,
    dotted,
    parse,
    read,
    text_of,
    walk,
)
from verl_doctor.toolkit.sources.python.summary import absolute

_PROGRAM = "trainer.main_ppo"
_DEEPEST = 10
# A name with more callers than this is too common to follow.
_MOST_CALLERS = 40


class Demand:
    """Searches for callers by name, as `reach` does.

    `whole` reads everything that a module mentions, whatever library it concerns. `entries` are modules that
    always run. If the program is not verl's, every function may be called.
    """

    def __init__(
        self, own: SourceTree, settings: Settings, whole: Callable[[str], Uses | None], entries: Iterable[str]
    ) -> None:
        self.own, self.settings, self.whole = own, settings, whole
        self._entries = tuple(entries)
        self._sources: dict[str, bytes] | None = None
        self._loaded: frozenset[str] | None = None
        self._trees: dict[str, ast.Module | None] = {}
        self._known: dict[str, str] = {}

    def condition(self, name: str) -> str:
        """Return the unmet condition for calling a function of this name; "" if the job may call it."""
        if name not in self._known:
            self._known[name] = self._condition(name, frozenset({name}))
        return self._known[name]

    def _condition(self, name: str, seen: frozenset[str]) -> str:
        modules = self._mentioning(name)
        if not self.settings.tree or not modules or len(modules) > _MOST_CALLERS or len(seen) > _DEEPEST:
            return ""
        inside = [module for module in modules if module in self._loadable()]
        if not inside or any(self._quotes(module, name) for module in inside):
            return "" if inside else self._only_in(modules)
        reasons: list[str] = []
        for module in inside:
            uses = self.whole(module)
            for unit, names in (uses.mentions if uses else {}).items():
                if name not in names or unit.rpartition(".")[2] == name:
                    continue
                reason = self._why_not(module, unit, names[name], uses.off if uses else frozenset(), seen)
                if not reason:
                    return ""
                reasons.append(reason)
        reasons = [reason for reason in reasons if reason != _CIRCLE]
        outside = [module for module in modules if module not in self._loadable()]
        return reasons[0] if reasons else self._only_in(outside) if outside else ""

    def _why_not(
        self,
        module: str,
        unit: str,
        when: tuple[str, ...],
        off: frozenset[tuple[str, str]],
        seen: frozenset[str],
    ) -> str:
        """Return the reason why a place that mentions the name is not reached; "" if it may be."""
        if any((unit, condition) in off for condition in when):
            return " and ".join(condition for condition in when if (unit, condition) in off)
        owner, _, last = unit.rpartition(".")
        if owner and (chosen := self._not_chosen(module, owner)):
            return chosen
        above = owner if last.startswith("__") and owner else last
        if not above:
            return ""
        return _CIRCLE if above in seen else self._condition(above, seen | {above})

    def _only_in(self, modules: list[str]) -> str:
        return f"{modules[0].partition('.')[2]} is used" if modules else ""

    # --- which modules there are, and which the job may load

    def _texts(self) -> dict[str, bytes]:
        if self._sources is None:
            found = ((self.own.name_of(path), read(path)) for path in self.own.files())
            self._sources = {name: text for name, text in found if name and isinstance(text, bytes)}
        return self._sources

    def _mentioning(self, name: str) -> list[str]:
        """Return the modules that contain this name other than in its definition."""
        word = re.compile(rb"(?<!def )\b" + re.escape(name.encode()) + rb"\b")
        return [module for module, text in self._texts().items() if word.search(text)]

    def _quotes(self, module: str, name: str) -> bool:
        """Return whether a module contains the name as a string, through which it may be called."""
        return re.search(rb"[\"']" + re.escape(name.encode()) + rb"[\"']", self._texts()[module]) is not None

    def _loadable(self) -> frozenset[str]:
        """Return the modules that the job's program may load, now or later: all if it is not verl's."""
        if self._loaded is None:
            program = self._program()
            self._loaded = frozenset(self._texts()) if program is None else frozenset(self._closure(program))
        return self._loaded

    def _program(self) -> str | None:
        if not self.settings.program:
            name = f"{self.own.name}.{_PROGRAM}"
            return name if name in self._texts() else None
        program = self.own.name_of(Path(self.settings.program))
        return program if program in self._texts() else None

    def _closure(self, program: str) -> Iterator[str]:
        seen: set[str] = set()
        waiting = [program, *self._entries]
        while waiting:
            module = waiting.pop()
            if module in seen or not module:
                continue
            seen.add(module)
            waiting.append(module.rpartition(".")[0])
            if module in self._texts():
                yield module
                waiting += self._imports(module)

    def _imports(self, module: str) -> Iterator[str]:
        """Yield the modules that a module names in an import at any depth, or in a string."""
        tree, file = self._tree(module), self.own.locate(module)
        if tree is None or file is None:
            return
        for node in walk(tree):
            match node:
                case ast.Import(names=names):
                    for alias in names:
                        yield self.own.own_name(alias.name) or ""
                case ast.ImportFrom(names=names):
                    source = self.own.own_name(absolute(node, file.package)) or ""
                    yield source
                    if source:
                        yield from (f"{source}.{alias.name}" for alias in names)
                case ast.Constant(value=str(text)) if (
                    text.isascii() and "." in text and (own := self.own.own_name(text))
                ):
                    yield own
                    yield own.rpartition(".")[0]

    def _tree(self, module: str) -> ast.Module | None:
        if module not in self._trees:
            file: ModuleFile | None = self.own.locate(module)
            parsed = parse(self._texts()[module], file.path) if file is not None else None
            self._trees[module] = None if isinstance(parsed, Unreadable) else parsed
        return self._trees[module]

    # --- classes registered under a name, of which a setting selects one

    def _not_chosen(self, module: str, name: str) -> str:
        """Return the condition for creating a registered class.

        It is returned if the settings select another class and no class extends this one.
        """
        tree = self._tree(module)
        for node in tree.body if tree is not None else ():
            if isinstance(node, ast.ClassDef) and node.name == name:
                for decorator in node.decorator_list:
                    match decorator:
                        case ast.Call(
                            func=ast.Name(id=registers), args=[ast.Constant(value=str(text))], keywords=[]
                        ):
                            chosen = self._choices(registers)
                            if (
                                chosen
                                and all(value != text for _, value in chosen)
                                and not self._extended(name)
                            ):
                                return f"{chosen[0][0]} == {text!r}"
        return ""

    def _extended(self, name: str) -> bool:
        word = re.compile(rb"class \w+\([^)]*\b" + name.encode() + rb"\b")
        return any(word.search(self._texts()[module]) for module in self._loadable())

    def _choices(self, registers: str) -> list[tuple[str, object]]:
        """Return the expressions that the job looks up in a table, with their values.

        A decorator fills the table. The result is empty if no expression is known.
        """
        defined = re.compile(rb"^def " + registers.encode() + rb"\(", re.MULTILINE)
        home = next((module for module, text in self._texts().items() if defined.search(text)), "")
        tree = self._tree(home) if home else None
        functions = [node for node in (tree.body if tree else ()) if isinstance(node, ast.FunctionDef)]
        tables = {table for node in functions if node.name == registers for table in _filled(node)}
        found: list[tuple[str, object]] = []
        for getter in (node.name for node in functions if node.name != registers and _looks_up(node, tables)):
            for module in self._mentioning(getter):
                for call in (
                    walk(self._tree(module) or ast.Module([], [])) if module in self._loadable() else ()
                ):
                    if isinstance(call, ast.Call) and dotted(call.func).rpartition(".")[2] == getter:
                        value = self._setting(call.args[0]) if call.args else UNCLEAR
                        if not isinstance(value, str):
                            return []
                        found.append((text_of(call.args[0]), value))
        return found

    def _setting(self, node: ast.expr) -> object:
        """Return the value of `config.a.b` or `self.config.a.b`, if the whole configuration has that key."""
        head, _, key = dotted(node).removeprefix("self.").partition(".")
        found = self.settings.at(key) if head == "config" and key else MISSING
        return UNCLEAR if found is MISSING else found


_CIRCLE = "it calls itself"


def _filled(node: ast.FunctionDef) -> Iterator[str]:
    """Yield the tables to which a function adds an entry."""
    for part in walk(node):
        if (
            isinstance(part, ast.Subscript)
            and isinstance(part.ctx, ast.Store)
            and isinstance(part.value, ast.Name)
        ):
            yield part.value.id


def _looks_up(node: ast.FunctionDef, tables: set[str]) -> bool:
    """Return whether a function returns an entry of one of the tables."""
    return any(isinstance(part, ast.Name) and part.id in tables for part in walk(node)) and any(
        isinstance(part, ast.Return) and part.value is not None for part in walk(node)
    )
