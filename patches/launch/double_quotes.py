"""Fix for DATA101: put a path with a variable into double quotes, so that the shell fills it in."""

from __future__ import annotations

import re

from verl_doctor.patches.shared.edited_files import edited_files
from verl_doctor.patches.shared.launch_lines import sets_variable
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.edit.word_edit import WordEdit, edited_words
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding

_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
_SPECIAL = re.compile(r"[\"`\\!$]")


@fix("double-quotes", repairs="DATA101", safety="safe")
def double_quotes(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Put a path with a variable into double quotes, so that the shell fills it in.

    Only a variable that the script sets, and only where nothing else in the word means something else in
    double quotes.
    """
    place, words = finding.location, launch.command.words if launch.command else ()
    found = [
        word
        for word in words
        if place
        and (word.path, word.line) == (place.path, place.line)
        and "'" in word.written
        and _VARIABLE.search(word.written)
    ]
    if len(found) != 1:
        return Refusal(f"{place}: no word in single quotes has a variable; edit it by hand")
    written = found[0].written
    names = [short or long for short, long in _VARIABLE.findall(written)]
    if missing := next((name for name in names if not sets_variable(name, launch, sources)), ""):
        return Refusal(f"the script does not set {missing}; only the user knows its value")
    if _SPECIAL.search(_VARIABLE.sub("", written)):
        return Refusal(f"{place}: {written} means something else in double quotes; edit it by hand")
    edit = WordEdit(found[0].line, written, (written.replace("'", '"'),))
    why = f"in single quotes the shell leaves ${names[0]} as it is"
    return edited_files(
        [found[0].path],
        sources,
        lambda path, before: edited_words(before, path, [edit], marker.comment("DATA101")),
        why,
    )
