"""Fix for CFG103: quote a word that the shell makes several of."""

from __future__ import annotations

from verl_doctor.patches.shared.edited_files import edited_files
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.edit.word_edit import WordEdit, edited_words
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("word-quoted", repairs="CFG103", safety="safe")
def word_quoted(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Quote a word that the shell makes several of.

    It splits `key=$NAME` at the blanks in the value, and `key={a:1,b:2}` at the comma between the braces. The
    quotes are double where a variable is to be filled in.
    """
    place = finding.location
    words = launch.command.words if launch.command else ()
    written = finding.subject.detail if finding.subject else ""
    here = [word for word in words if word.written == written]
    if place is None or len(here) < 2:
        return Refusal("the finding names no word that became several")
    quote = '"' if "$" in written else "'"
    edit = WordEdit(here[0].line, written, (f"{quote}{written}{quote}",))
    return edited_files(
        [here[0].path],
        sources,
        lambda path, before: edited_words(before, path, [edit], marker.comment("CFG103")),
        f"the shell makes {len(here)} words of it",
    )
