"""Shared by the fixes that edit a source at each use of vLLM that a finding reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from verl_doctor.patches.shared.edited_files import edited_sources
from verl_doctor.toolkit.change import Change, Refusal
from verl_doctor.toolkit.collectors.api.uses import ApiUse, VllmUses
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import Edit, SourceText


def broken_uses(finding: Finding, uses: VllmUses) -> Iterator[ApiUse]:
    """Yield the breaking uses at the finding's locations."""
    places = {(p.path, p.line) for p in (finding.location, *finding.also) if p is not None}
    return (use for use in uses.uses if use.breaks and (use.path, use.line) in places)


def edited_at(
    uses: Iterable[ApiUse], edit: Callable[[SourceText, ApiUse], Edit], sources: SourceFiles, comment: str
) -> list[Change] | Refusal:
    """Return one change for each file, or why one of them cannot be edited. `edit` may raise CannotEdit."""
    found = list(uses)

    def at_uses(source: SourceText) -> bytes:
        return source.edited({edit(source, use) for use in found if use.path == source.path}, comment)

    return edited_sources(sorted({use.path for use in found}), sources, at_uses)
