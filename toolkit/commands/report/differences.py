"""The differences from where the job worked: what breaks or matters is shown, the rest is folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verl_doctor.toolkit.commands.report.page import Block, Fold, PageSection, Paragraph, Points, Rank, Table
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.comparison.comparison import Difference
from verl_doctor.toolkit.comparison.document import headline, side
from verl_doctor.toolkit.text import counted

_NONE = "-"
_HEAD = ("weight", "what", "was", "is", "where and why")


def sections(seen: Seen) -> Iterator[PageSection]:
    """Yield the section; nothing without a comparison."""
    compared = seen.compared
    if compared is None:
        return
    shown = (*compared.of("breaks"), *compared.of("matters"))
    blocks: list[Block] = [
        Paragraph(headline(compared)),
        Paragraph(f"Compared with {side(compared.old, 'another machine')}."),
    ]
    blocks += [_table(shown)] if shown else []
    if noise := compared.of("noise"):
        blocks.append(Fold(f"{counted(len(noise), 'difference')} that should not matter", (_table(noise),)))
    if compared.gone:
        gone = Points(tuple(f"{code}: {message}" for code, message in compared.gone))
        blocks.append(
            Fold(f"{counted(len(compared.gone), 'fault')} that it had and this machine does not", (gone,))
        )
    if undetermined := (*compared.lost, *compared.not_compared):
        blocks.append(Fold("What could not be compared", (Points(undetermined),)))
    yield PageSection("What differs from where it worked", tuple(blocks), Rank.FINDINGS)


def _table(differences: Iterable[Difference]) -> Table:
    return Table(_HEAD, tuple(map(_row, differences)))


def _row(difference: Difference) -> tuple[str, ...]:
    why = "; ".join(
        filter(None, (difference.nodes, ", ".join(difference.codes), difference.why, difference.next))
    )
    return (
        difference.weight,
        f"{difference.kind}: {difference.subject}",
        difference.old or _NONE,
        difference.new or _NONE,
        why,
    )
