"""Shared by the fixes of the training command: turns a rule's correction into one change for each file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from verl_doctor.patches.shared.edited_files import edited_files
from verl_doctor.patches.shared.launch_lines import edit_lines
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import COMMAND_LINE, Launch, Word
from verl_doctor.toolkit.edit.line_edit import LineEdit
from verl_doctor.toolkit.edit.word_edit import WordEdit, as_word, edited_words, with_key, with_value
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding, Location, Rewrite
from verl_doctor.toolkit.sources.python.edit import CannotEdit

CORRECTED = (
    *("ATT102", "ATT109", "BUILD130", "CFG101", "CFG102", "CFG103", "CFG108", "CFG109"),
    *(
        "CFG111",
        "CFG113",
        "CFG115",
        "CFG116",
        "CFG119",
        "CFG120",
        "CFG121",
        "CFG122",
        "CFG123",
        "CFG133",
        "CFG135",
    ),
    *("CFG124", "CFG125", "CFG126", "CFG128", "CFG131", "CUDA157", "DATA101", "DATA107", "DATA111"),
    *(
        "CFG127",
        "CFG129",
        "CFG132",
        "CFG134",
        "CUDA153",
        "DATA104",
        "DATA108",
        "DATA110",
        "DATA114",
        "ENV106",
    ),
    *(
        "ENV118",
        "LOAD101",
        "LOAD108",
        "LOAD117",
        "LOAD118",
        "LOAD123",
        "HOST108",
        "RAY103",
        "RAY109",
        "RAY147",
    ),
)
"""The rules whose findings may carry a correction.

Two fixes serve all of them: one for safe corrections, one for the others.
"""

_EXPANSION = re.compile(r"\"?\$(?:\w+|[@*]|\{[^{}]*\})\"?")


def rewritten(
    finding: Finding, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Apply the edits of a finding's correction, all or none."""
    correction = finding.correction
    if correction is None:
        return Refusal(f"nothing can be proposed for this line; edit it by hand: {finding.location}")
    why = "; ".join(filter(None, (correction.why, correction.effect)))
    comment = marker.comment(correction.code)
    lines = {
        rewrite.at: _line_edit(rewrite)
        for rewrite in correction.rewrites
        if rewrite.at and _is_variable(rewrite, launch)
    }
    if lines:
        first, *also = lines
        found = replace(finding, location=first, also=tuple(also))
        changes = edit_lines(found, launch, sources, comment, lambda at: lines[at])
        return changes if isinstance(changes, Refusal) else [_explained(change, why) for change in changes]
    try:
        edits = list(_edits(correction.rewrites, launch))
    except CannotEdit as reason:
        return Refusal(str(reason))

    def words_edited(path: str, before: bytes) -> bytes:
        return edited_words(before, path, [edit for at, edit in edits if at == path], comment)

    return edited_files(sorted({path for path, _ in edits}), sources, words_edited, why)


def _is_variable(rewrite: Rewrite, launch: Launch) -> bool:
    """Return whether a rewrite is about a line that sets a variable, not about a word of the command."""
    name = rewrite.old.partition("=")[0]
    return any(
        setting.name == name and Location(setting.path, setting.line) == rewrite.at
        for setting in launch.settings
    )


def _line_edit(rewrite: Rewrite) -> LineEdit:
    """Return the edit of a line `NAME=value`: another value, within the user's quotes, or none."""
    name, _, old = rewrite.old.partition("=")
    new = rewrite.new
    line = rewrite.at.line if rewrite.at else None
    return LineEdit(line or 0, name if new is None else old, new and new.partition("=")[2])


def _explained(change: Change, why: str) -> Change:
    return replace(change, why=why) if isinstance(change, ReplaceFile) else change


def _edits(rewrites: Iterable[Rewrite], launch: Launch) -> Iterator[tuple[str, WordEdit]]:
    """Yield the edits with the paths of their files."""
    words = launch.command.words if launch.command else ()
    launcher = launch.command.launcher if launch.command else ()
    added: list[str] = []
    for rewrite in rewrites:
        if not rewrite.old:
            added += [as_word(rewrite.new)] if rewrite.new else []
            continue
        if any(_is_at(rewrite, word) for word in launcher):
            yield _of_launcher(rewrite, launcher)
            continue
        command = launch.command
        if command and (rewrite.old, rewrite.at) == (command.module, Location(command.path, command.line)):
            yield command.path, WordEdit(command.line, rewrite.old, tuple((rewrite.new or "").split()))
            continue
        word = _found(rewrite, words)
        new = () if rewrite.new is None else (_written(word, rewrite.old, rewrite.new),)
        yield word.path, WordEdit(word.line, word.written, new)
    if added:
        last = _last(words, rewrites)
        yield last.path, WordEdit(last.line, last.written, tuple(added), follows=True)


def _of_launcher(rewrite: Rewrite, words: Sequence[Word]) -> tuple[str, WordEdit]:
    """Return the edit of a launcher's word, which may become several."""
    here = [word for word in words if _is_at(rewrite, word)]
    if len(here) != 1:
        raise CannotEdit(f"{rewrite.at}: {rewrite.old} does not occur there exactly once; edit it by hand")
    new = tuple(as_word(text) for text in (rewrite.new or "").split())
    return here[0].path, WordEdit(here[0].line, here[0].written, new)


def _is_at(rewrite: Rewrite, word: Word) -> bool:
    return rewrite.old == (word.written if word.text is None else word.text) and _place(word) == rewrite.at


def _found(rewrite: Rewrite, words: Sequence[Word]) -> Word:
    # A word whose value cannot be determined is identified by its written form.
    here = [word for word in words if _is_at(rewrite, word)]
    if len(here) != 1:
        raise CannotEdit(f"{rewrite.at}: {rewrite.old} does not occur there exactly once; edit it by hand")
    (word,) = here
    if word.text is not None and _EXPANSION.fullmatch(word.written):
        return replace(word, written=word.text)  # it is edited where the variable gets it
    if sum((other.written, _place(other)) == (word.written, _place(word)) for other in words) > 1:
        raise CannotEdit(
            f"{rewrite.at}: {rewrite.old} comes from {word.written} together with other words; edit it "
            "where that is set"
        )
    return word


def _last(words: Iterable[Word], rewrites: Iterable[Rewrite]) -> Word:
    """Return the command's last setting that stays unchanged and can be followed by others."""
    edited = {(rewrite.old, rewrite.at) for rewrite in rewrites}
    for word in reversed(list(words)):
        is_setting = word.path != COMMAND_LINE and word.text and "=" in word.text
        if is_setting and not word.conditional and (word.text, _place(word)) not in edited:
            return word
    raise CannotEdit(
        "no setting of the command is in a file, so there is no place for another; add it by hand"
    )


def _written(word: Word, old: str, new: str) -> str:
    """Return the new word in the user's style of quoting."""
    key, _, value = old.lstrip("\"'").partition("=")
    new_key, _, new_value = new.partition("=")
    try:
        if new_key == key:
            return with_value(word.written, key, new_value)
        if new_value == value:
            return with_key(word.written, key, new_key)
    except CannotEdit:
        pass
    return as_word(new)


def _place(word: Word) -> Location:
    return Location(word.path, word.line)
