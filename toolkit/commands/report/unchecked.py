"""What could not be checked and why, each cause once. What was skipped on purpose is not included."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.commands.report.page import Block, Fold, PageSection, Paragraph, Rank, Table
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.render.result_words import by_reason
from verl_doctor.toolkit.text import counted


def sections(seen: Seen) -> Iterator[PageSection]:
    """Yield the section; it is present even if everything was checked."""
    report = seen.report
    blocks: list[Block] = []
    rows = [
        (
            reason or "no reason was given",
            ", ".join(result.code for result in results if not result.deliberate),
        )
        for reason, results in by_reason(report, "error", "skipped").items()
    ]
    if rows := [row for row in rows if row[1]]:
        blocks.append(Table(("why", "rules"), tuple(rows)))
    unjudged = [(result.code, entry) for result in report.results for entry in result.unjudged]
    if unjudged:
        unjudged_rows = tuple((code, entry.what, str(entry.location), entry.why) for code, entry in unjudged)
        table = Table(("rule", "what", "where", "why"), unjudged_rows)
        blocks.append(
            Fold(f"{counted(len(unjudged_rows), 'place')} of sources that could not be checked", (table,))
        )
    others = report.summary
    left_out = sum(result.deliberate for result in report.results)
    sentences = [f"{counted(others['pass'], 'rule')} passed", f"{others['not_applicable']} do not apply here"]
    sentences += [f"{left_out} were skipped on purpose or need --deep"] if left_out else []
    blocks.insert(
        0, Paragraph(("" if rows else "Everything that applies was checked. ") + ", ".join(sentences) + ".")
    )
    yield PageSection("What could not be checked", tuple(blocks), Rank.DETAILS)
