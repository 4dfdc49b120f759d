"""Fix for CFG103 and CFG104: pass every element of an array, and every argument, as a word of its own."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_files
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.edit.word_edit import WordEdit, edited_words
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("every-word-passed", repairs=("CFG103", "CFG104"), safety="safe")
def every_word_passed(finding: Finding, sources: SourceFiles, marker: Marker) -> list[Change] | Refusal:
    """Pass every element of an array, and every argument, as a word of its own.

    `$ARGS` is the first element alone, and `"${ARGS[*]}"` and `"$*"` are all in one word. `"${ARGS[@]}"` and
    `"$@"` take their place. A text of several settings, `"$EXTRA"`, loses its quotes.
    """
    place, subject = finding.location, finding.subject
    if place is None or not place.line or subject is None or not subject.detail:
        return Refusal("the finding names no array and no variable")
    edit = WordEdit(place.line, subject.name, (subject.detail,))
    is_array = "[@]" in subject.detail and "*" not in subject.name
    comment = marker.comment("CFG104" if is_array else "CFG103")
    return edited_files(
        [place.path],
        sources,
        lambda path, before: edited_words(before, path, [edit], comment),
    )
