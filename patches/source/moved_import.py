"""Fix for VLLM102: import a name that vLLM moved from its new place if the release lacks the old one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_doctor.checks.api._vllm_renames import REMOVED
from verl_doctor.patches.source._imports import replaced_imports
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.sources.python.source import parse, walk

CODE = "VLLM102"
_KINDS = {ast.ClassDef: "a class", ast.FunctionDef: "a function", ast.AsyncFunctionDef: "a coroutine"}
_CLASS_NAME = re.compile(r"_*[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
_FUNCTION_NAME = re.compile(r"_*[a-z][a-z0-9_]*")


@fix(
    "moved-import",
    repairs=CODE,
    safety="safe",
    upstream="vllm-project/vllm#25901 (vllm.worker), #26900 and #27188 (vllm.utils), and many others",
    needed="a vLLM that no longer has the name where verl imports it from",
    restart="running Ray workers, which keep the old code",
)
def moved_import(
    finding: Finding, uses: VllmUses, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Import a moved name from its new place if vLLM lacks it at the old one.

    Each statement that the finding names is repaired for all of its moved names. Refused if the name is not
    what verl expects at the new place, or if the import has an unusual form.
    """
    kinds = _Kinds(uses, sources)

    def successor(use: ApiUse, tree: ast.Module, local: str) -> tuple[str, str]:
        if use.name in REMOVED:
            raise CannotEdit(f"{use.last}: {REMOVED[use.name]}")
        if not use.now:
            raise CannotEdit(f"{use.last} is not found anywhere else in this vLLM")
        if why := kinds.obstacle(use, tree, local):
            raise CannotEdit(why)
        module, _, name = use.now.rpartition(".")
        return module, name

    return replaced_imports(finding, uses.uses, sources, marker.comment(CODE), successor)


class _Kinds:
    """Compares what a name is at its new place with what verl expects: a class or a function."""

    def __init__(self, uses: VllmUses, sources: SourceFiles) -> None:
        self.folder = Path(uses.library.folder)
        self.package = uses.library.module
        self.sources = sources

    def obstacle(self, use: ApiUse, tree: ast.Module, local: str) -> str:
        """Return why the definition at the new place is something different; "" if nothing shows that."""
        found = self._definition(use)
        kind = next((title for node, title in _KINDS.items() if isinstance(found, node)), "")
        expected = _expected(use.last, tree, local)
        if not kind or not expected or (expected == "a class") == (kind == "a class"):
            return ""
        return f"{use.last} is {kind} in {use.now.rpartition('.')[0]}, and verl expects {expected}"

    def _definition(self, use: ApiUse) -> ast.stmt | None:
        module = use.now.rpartition(".")[0].split(".")[1:]
        path = self.folder.joinpath(*module)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            source = self.sources.read(str(file))
            tree = parse(source, file) if isinstance(source, bytes) else source
            if isinstance(tree, ast.Module):
                return next((node for node in tree.body if getattr(node, "name", "") == use.last), None)
        return None


def _expected(name: str, tree: ast.Module, local: str) -> str:
    """Return what verl expects a name to be, judging by its use, otherwise by its spelling."""
    if local in set(_as_class(tree)) or _CLASS_NAME.fullmatch(name):
        return "a class"
    return "a function" if _FUNCTION_NAME.fullmatch(name) else ""


def _as_class(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module derives from, annotates with, or passes to `isinstance`."""
    for node in walk(tree):
        match node:
            case ast.ClassDef(bases=parts):
                yield from _names(parts)
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                yield from _names([kinds])
            case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
                yield from _names([annotation])


def _names(parts: Iterable[ast.expr]) -> Iterator[str]:
    return (node.id for part in parts for node in walk(part) if isinstance(node, ast.Name))
