"""Why the run failed, according to its logs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.commands.report.page import (
    Block,
    Card,
    Fold,
    Language,
    Listing,
    Mark,
    PageSection,
    Paragraph,
    Rank,
    Table,
    Values,
)
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.logs.causes import remedy_of
from verl_doctor.toolkit.logs.headline import headline
from verl_doctor.toolkit.logs.lines import shown, shown_together
from verl_doctor.toolkit.logs.logged_error import LoggedError
from verl_doctor.toolkit.logs.next_steps import next_steps
from verl_doctor.toolkit.text import counted, without_middle

_HEADING = 160  # characters of an error in a heading; the full text follows


def sections(seen: Seen) -> Iterator[PageSection]:
    """Yield the cause, or that none was found, with the lines that show it, and other lines."""
    answer = seen.log
    if answer is None:
        return
    reading = answer.reading
    word, sentence = headline(answer)
    mark = Mark.BAD if reading.first is not None else Mark.BROKEN if reading.error else Mark.HINT
    blocks: list[Block] = [Paragraph(f"{word}: {sentence}")]
    blocks += [_card(cause, mark) for cause in reading.causes]
    blocks += [_card(reading.error, mark)] if reading.error is not None else []
    if steps := tuple(next_steps(answer)):
        blocks.append(Listing(steps, Language.SHELL))
    beside = (*reading.consequences, *reading.also, *reading.hints)
    if beside:
        rows = tuple(
            (_place(error), error.signature.title if error.signature else "", shown(error.words))
            for error in beside
        )
        table = Table(("line", "kind", "text"), rows)
        blocks.append(Fold(f"{counted(len(rows), 'line')} about something else", (table,)))
    blocks += [Paragraph(note) for note in answer.notes]
    yield PageSection("What the logs show", tuple(blocks), Rank.VERDICT)


def _card(error: LoggedError, mark: Mark) -> Card:
    known, words = error.signature, shown(error.words)
    title = without_middle(words, _HEADING)
    if known is not None:
        title = f"{known.code}: {known.title}".removeprefix(": ")
    rows = [("at", _place(error)), ("process", shown(error.process))]
    rows += [("do", remedy_of(error))]
    lines = Listing(tuple(shown_together(error.lines)))
    return Card(title, (Values(tuple(row for row in rows if row[1])), lines), mark)


def _place(error: LoggedError) -> str:
    return f"{error.source}:{error.number}" + (f" ({error.times} times)" if error.times > 1 else "")
