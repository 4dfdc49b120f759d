"""What the fixes share that edit a source at each use of vLLM that a finding speaks of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit, Edit, SourceText
from verl_doctor.toolkit.sources.python.source import Unreadable


def broken_uses(finding: Finding, uses: VllmUses) -> Iterator[ApiUse]:
    """The uses that break, in the places of the finding."""
    places = {(p.path, p.line) for p in (finding.location, *finding.also) if p is not None}
    return (use for use in uses.uses if use.breaks and (use.path, use.line) in places)


def edited_at(
    uses: Iterable[ApiUse], edit: Callable[[SourceText, ApiUse], Edit], sources: SourceFiles, comment: str
) -> list[Change] | Refusal:
    """One change for each file, or why one of them cannot be edited. `edit` may raise CannotEdit."""
    found = list(uses)
    changes: list[Change] = []
    try:
        for path in sorted({use.path for use in found}):
            before = sources.read(path)
            if isinstance(before, Unreadable):
                return Refusal(before.reason)
            source = SourceText(before, path)
            edits = {edit(source, use) for use in found if use.path == path}
            changes.append(ReplaceFile(Path(path), before, source.edited(edits, comment)))
    except CannotEdit as reason:
        return Refusal(str(reason))
    return changes
