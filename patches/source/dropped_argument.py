"""Fix for VLLM103: pass an argument only if vLLM still accepts it.

It covers arguments that vLLM now gets from elsewhere (`checks/api/_vllm_dropped.py`), so the call means the
same without them.
"""

from __future__ import annotations

import ast

from verl_doctor.checks.api._vllm_dropped import Dropped, dropped
from verl_doctor.patches.source._at_uses import broken_uses, edited_at
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.sources.python.source import dotted, text_of, walk

CODE = "VLLM103"


@fix(
    "dropped-argument",
    repairs=CODE,
    safety="safe",
    upstream="vllm-project/vllm; verl checks for the parameter in the same way since 0.7.1",
    needed="vllm>=0.11.1 for the OpenAI server, vllm>=0.14 for WorkerWrapperBase",
    restart="running Ray workers, which keep the old code",
)
def dropped_argument(
    finding: Finding, uses: VllmUses, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Pass an argument that vLLM now gets from elsewhere only if the callee still accepts it.

    The edited call reads the signature at run time, so the file works with vLLM before and after the change.
    """
    found = [use for use in broken_uses(finding, uses) if dropped(use)]
    return edited_at(found, _edit, sources, marker.comment(CODE))


def _edit(source: SourceText, use: ApiUse) -> Edit:
    """Replace one argument. Raises CannotEdit, with the line, for a call in an unsupported form."""
    where, lost = f"{source.path}:{use.line}", dropped(use)
    call = _call(source.tree, use)
    if call is None or lost is None:
        raise CannotEdit(f"{where}: the file has changed since it was read")
    callee = dotted(call.func)
    if not callee:
        raise CannotEdit(f"{where}: {text_of(call.func)} is not a plain name")
    condition = f'"{lost.parameter}" in __import__("inspect").signature({callee}).parameters'
    if use.kind == "keyword":
        keyword = next(passed for passed in call.keywords if passed.arg == lost.parameter)
        given = f'**({{"{lost.parameter}": {source.of(keyword.value)}}} if {condition} else {{}})'
        return Edit(source.start(keyword), source.end(keyword), given)
    argument = _positional(call, lost, where)
    return Edit(
        source.start(argument), source.end(argument), f"*(({source.of(argument)},) if {condition} else ())"
    )


def _call(tree: ast.Module, use: ApiUse) -> ast.Call | None:
    """Return the call of a use, whose position is that of the call or of its keyword."""
    for node in walk(tree):
        if isinstance(node, ast.Call):
            keywords = [keyword for keyword in node.keywords if keyword.arg == use.last]
            places: list[ast.expr | ast.keyword] = [*keywords] if use.kind == "keyword" else [node]
            if any((place.lineno, place.col_offset) == (use.line, use.column) for place in places):
                return node
    return None


def _positional(call: ast.Call, lost: Dropped, where: str) -> ast.expr:
    """Return the only positional argument named like the lost parameter, which is how verl writes it."""
    named = [argument for argument in call.args if dotted(argument).rpartition(".")[2] == lost.parameter]
    if len(named) != 1 or any(isinstance(argument, ast.Starred) for argument in call.args):
        raise CannotEdit(f"{where}: unknown which argument is {lost.parameter}")
    return named[0]
