"""Fix for VLLM102: catch ImportError where the code catches ModuleNotFoundError only.

A name that is missing from an existing module raises ImportError, of which ModuleNotFoundError is a subclass.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from verl_doctor.patches.source._at_uses import broken_uses, edited_at
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.sources.python.source import dotted, statements, walk

CODE = "VLLM102"
_WIDER = frozenset({"ImportError", "Exception", "BaseException"})


@fix(
    "widen-except",
    repairs=CODE,
    safety="safe",
    upstream="verl-project/verl#3687",
    needed="a vLLM that has the module but lacks the name",
    restart="running Ray workers, which keep the old code",
)
def widen_except(
    finding: Finding, uses: VllmUses, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Let verl's own handler of a failed import also catch a missing name.

    It still catches what it caught before: ModuleNotFoundError is an ImportError.
    """
    found = [use for use in broken_uses(finding, uses) if use.handler]
    return edited_at(found, _edit, sources, marker.comment(CODE))


def _edit(source: SourceText, use: ApiUse) -> Edit:
    """Replace the type in the innermost handler. Raises CannotEdit, with the line."""
    for node in reversed(list(_around(source.tree, use))):
        for handler in node.handlers:
            kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
            for kind in kinds:
                if isinstance(kind, ast.Name) and kind.id == "ModuleNotFoundError":
                    _refuse_if_meant(source, node)
                    return Edit(source.start(kind), source.end(kind), "ImportError")
    raise CannotEdit(f"{source.path}:{use.line}: no `except ModuleNotFoundError` around it")


def _refuse_if_meant(source: SourceText, node: ast.Try) -> None:
    """Raise CannotEdit if another handler of the same `try` already handles a missing name."""
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or dotted(kind) in _WIDER for kind in kinds):
            raise CannotEdit(
                f"{source.path}:{handler.lineno}: verl handles a missing name here in another way"
            )


def _around(tree: ast.Module, use: ApiUse) -> Iterator[ast.Try]:
    """Yield the `try` statements whose body contains an import, outermost first."""
    for node in statements(tree):
        if isinstance(node, ast.Try):
            imported = (
                (alias.lineno, alias.col_offset)
                for part in node.body
                for inner in walk(part)
                if isinstance(inner, (ast.Import, ast.ImportFrom))
                for alias in inner.names
            )
            if (use.line, use.column) in imported:
                yield node
