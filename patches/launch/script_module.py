"""Fix for PY113: write the module that this verl has into the launch script."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_files
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.edit.word_edit import WordEdit, edited_words
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("script-module", repairs="PY113", safety="safe")
def script_module(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Write the module that this verl has into the launch script.

    Only a module with almost the same name. The unchanged script stops before anything starts.
    """
    if finding.subject is None or not finding.subject.detail:
        return Refusal("this verl has no module with a similar name")
    module, near = finding.subject.name, finding.subject.detail

    places = [place for place in (finding.location, *finding.also) if place is not None and place.line]

    def words_edited(path: str, before: bytes) -> bytes:
        edits = [WordEdit(place.line or 0, module, (near,)) for place in places if place.path == path]
        return edited_words(before, path, edits, marker.comment("PY113"))

    return edited_files(sorted({place.path for place in places}), sources, words_edited)
