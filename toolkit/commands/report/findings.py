"""The findings, the worst first, with their evidence; the silenced rules; and the known repairs.

The repairs come with the lines that they change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from verl_doctor.toolkit.commands.report.page import (
    Block,
    Card,
    Fold,
    Language,
    Listing,
    Mark,
    PageSection,
    Points,
    Rank,
    Values,
)
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.render import nodes
from verl_doctor.toolkit.render.result_words import SILENCED, repair_command, silenced_rules, stopped_by
from verl_doctor.toolkit.result import CheckResult, Repair, Report
from verl_doctor.toolkit.rule import SEVERITIES, Finding
from verl_doctor.toolkit.text import counted

_LEFT_OUT = (" ", "@@", "--- a/", "--- /dev/null")  # context and heads of a diff
_MARKS = {"error": Mark.BAD, "warning": Mark.DOUBTFUL, "info": Mark.HINT}


def sections(seen: Seen) -> Iterator[PageSection]:
    """Findings, then what the user silenced, then hints, then repairs."""
    report = seen.report
    found = [pair for severity in SEVERITIES for pair in report.findings() if pair[1].severity == severity]
    if shown := tuple(_card(*pair, report) for pair in found if pair[1].severity != "info"):
        yield PageSection("Findings", shown, Rank.FINDINGS)
    if silenced := tuple(silenced_rules(report)):
        yield PageSection("Silenced by the configuration", (Points(silenced),), Rank.FINDINGS)
    if report.repairs:
        yield PageSection("Proposed repairs", tuple(_repairs(report.repairs)), Rank.REPAIRS)
    if hints := tuple(_hint(*pair) for pair in found if pair[1].severity == "info"):
        title = f"{counted(len(hints), 'hint')} without effect on the verdict"
        yield PageSection("Hints", (Fold(title, (Points(hints),)),), Rank.DETAILS)


def _card(result: CheckResult, finding: Finding, report: Report) -> Card:
    evidence = finding.evidence
    places = [finding.location, *finding.also] if finding.location else finding.also
    expected = f"; expected: {evidence.wanted}" if evidence.wanted else ""
    rows = (
        ("stops", stopped_by(finding)),
        ("at", ", ".join(map(str, places))),
        ("found", evidence.found + expected),
        ("read from", "" if places and places[0].path == evidence.read_from else evidence.read_from),
        ("nodes", nodes.of(finding)),
        ("note", "" if result.reason_kind == SILENCED else result.reason),
        ("do", finding.remedy),
        ("fix", repair_command(result.code, finding, report)),
    )
    shown = Values(tuple(row for row in rows if row[1]))
    return Card(f"{result.code}: {finding.message}", (shown,), _MARKS[finding.severity or "error"])


def _hint(result: CheckResult, finding: Finding) -> str:
    place = f" ({finding.location})" if finding.location else ""
    return f"{result.code}: {finding.message}{place}"


def _repairs(repairs: Iterable[Repair]) -> Iterator[Block]:
    """Yield a line for each repair, and folded what they would change."""
    yield Points(tuple(map(_repair, repairs)))
    if changed := tuple(_changed(repairs)):
        yield Fold(counted(len(changed), "changed line"), (Listing(changed, Language.DIFF),))


def _repair(repair: Repair) -> str:
    restart = f"restart afterwards: {repair.restart}" if repair.restart else ""
    more = "; ".join(filter(None, (repair.reason, *repair.notes, restart)))
    return f"{repair.code}: {repair.title} ({repair.outcome}, {repair.safety}){': ' if more else ''}{more}"


def _changed(repairs: Iterable[Repair]) -> Iterator[str]:
    """Yield the lines of the diffs without their context, and the name of each file once in a row."""
    file = ""
    for line in (line for repair in repairs for line in repair.diff.splitlines()):
        if line != file and not line.startswith(_LEFT_OUT):
            yield line
        file = line if line.startswith("+++ ") else file
