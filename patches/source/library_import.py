"""Fix for API101: import what a library moved or replaced from its new place if the old name is missing.

For example, transformers 5 lacks AutoModelForVision2Seq, which had become an alias of
AutoModelForImageTextToText.
"""

from __future__ import annotations

import ast

from verl_doctor.checks.api._successors import SUCCESSORS
from verl_doctor.patches.source._imports import replaced_imports
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.api.uses import ApiUse, LibraryUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit

CODE = "API101"


@fix(
    "library-import",
    repairs=CODE,
    safety="safe",
    upstream=", ".join(dict.fromkeys(then.upstream for then in SUCCESSORS.values())),
    needed="transformers>=5 for AutoModelForVision2Seq; otherwise a release that has the name only elsewhere",
    restart="running Ray workers, which keep the old code",
)
def library_import(
    finding: Finding, uses: LibraryUses, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Import the replacement of a name that the library no longer has.

    The old name is tried first, so the edited file works with releases before and after the change.
    """
    every = [use for library in uses.answers for use in library.uses]
    return replaced_imports(finding, every, sources, marker.comment(CODE), _successor)


def _successor(use: ApiUse, _tree: ast.Module, _local: str) -> tuple[str, str]:
    if use.name in SUCCESSORS:
        return use.name.partition(":")[0], SUCCESSORS[use.name].name
    if not use.now:
        raise CannotEdit(f"{use.last} is not found anywhere else in this {use.name.partition('.')[0]}")
    module, _, name = use.now.rpartition(".")
    return module, name
