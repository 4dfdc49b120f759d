"""Fix for ENV105 in verl's own modules: `pass` replaces what puts CUDA's stubs on the loader's path."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from verl_doctor.patches.shared.edited_files import edited_sources, paths_of
from verl_doctor.patches.shared.loader_path_lines import is_stubs
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.cuda.library_path import VARIABLE, sets
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText

CODE = "ENV105"
_DEPTH = 5  # names that refer to names


@fix(
    "stubs-off-loader-path-in-source",
    repairs=CODE,
    safety="safe",
    needed="no release of verl, vLLM or Triton since 2.4: the linker does not search the loader's path",
    restart="running Ray workers, which keep the old code",
)
def stubs_off_loader_path_in_source(
    finding: Finding, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Remove the statements that put CUDA's stubs, and nothing else, on the loader's path.

    The job is checked again: CUDA105 reports if Triton then finds no libcuda to link with.
    """

    def without(source: SourceText) -> bytes:
        assigned = _assigned(source.tree)
        edits = [
            Edit(source.start(node), source.end(node), "pass")
            for node in ast.walk(source.tree)
            if isinstance(node, ast.stmt) and _sets_it(node) and _adds_stubs_alone(node, assigned, source)
        ]
        return source.edited(edits, marker.comment(CODE))

    return edited_sources(paths_of(finding), sources, without)


def _sets_it(node: ast.stmt) -> bool:
    return sets(node) or (isinstance(node, ast.Expr) and sets(node.value))


def _adds_stubs_alone(node: ast.stmt, assigned: Mapping[str, list[ast.expr]], source: SourceText) -> bool:
    """Return whether to remove a statement; False if it does not concern stubs.

    Raises CannotEdit if it does more.
    """
    folders = list(_folders(node, assigned, _DEPTH))
    if not any(folder and is_stubs(folder.rstrip("/")) for folder in folders):
        return False
    if others := [folder for folder in folders if folder is None or not is_stubs(folder.rstrip("/"))]:
        what = f"{others[0]} to {VARIABLE} too" if others[0] else f"an unknown value to {VARIABLE}"
        raise CannotEdit(f"{source.path}:{node.lineno} adds {what}; remove the stubs by hand")
    if not source.is_alone(node):
        raise CannotEdit(f"{source.path}:{node.lineno}: there is other code on this line")
    return True


def _folders(node: ast.AST, assigned: Mapping[str, list[ast.expr]], depth: int) -> Iterator[str | None]:
    """Yield the folders that an expression names, without the variable's old value; None if unknown."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from (word for word in part.value.split(":") if word and word != VARIABLE)
        elif isinstance(part, ast.Name) and part.id in assigned:
            for value in assigned[part.id]:
                yield from _folders(value, assigned, depth - 1) if depth else [None]
        elif isinstance(part, ast.Name):
            yield None


def _assigned(tree: ast.Module) -> Mapping[str, list[ast.expr]]:
    """Return the values of each name; none for a module, which is not a folder."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {(alias.asname or alias.name).partition(".")[0]: [] for alias in names}
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.setdefault(name, []).append(value)
    return found
