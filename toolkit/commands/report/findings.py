"""The findings, the worst first, with their evidence; and the known repairs, as diffs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.commands.report.page import (
    Block,
    Card,
    Fold,
    Language,
    Listing,
    Mark,
    Paragraph,
    Rank,
    Section,
    Values,
)
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.render import nodes
from verl_doctor.toolkit.render.result_words import stopped_by
from verl_doctor.toolkit.result import CheckResult, Repair, Report
from verl_doctor.toolkit.rule import SEVERITIES, Finding
from verl_doctor.toolkit.text import counted

_MARKS = {"error": Mark.BAD, "warning": Mark.DOUBTFUL, "info": Mark.HINT}
_SHORT = 12  # lines of a diff that is shown unfolded


def sections(seen: Seen) -> Iterator[Section]:
    """Findings, then hints, then repairs."""
    found = {
        severity: tuple(
            _card(result, finding, seen.report)
            for result, finding in seen.report.findings()
            if finding.severity == severity
        )
        for severity in SEVERITIES
    }
    if shown := (*found["error"], *found["warning"]):
        yield Section("Findings", shown, Rank.FINDINGS)
    if repairs := seen.report.repairs:
        yield Section("Proposed repairs", tuple(map(_repair, repairs)), Rank.REPAIRS)
    if found["info"]:
        hints = Fold(f"{counted(len(found['info']), 'hint')} without effect on the verdict", found["info"])
        yield Section("Hints", (hints,), Rank.DETAILS)


def _card(result: CheckResult, finding: Finding, report: Report) -> Card:
    evidence = finding.evidence
    rows = (
        ("stops", stopped_by(finding)),
        ("at", str(finding.location) if finding.location else ""),
        *(("and", str(location)) for location in finding.also),
        ("found", evidence.found),
        ("expected", evidence.wanted),
        ("read from", evidence.read_from),
        ("nodes", nodes.of(finding)),
        ("note", result.reason),
        ("do", finding.remedy),
        ("repair", _known(finding, report)),
    )
    shown = Values(tuple(row for row in rows if row[1]))
    return Card(f"{result.code}: {finding.message}", (shown,), _MARKS[finding.severity or "error"])


def _known(finding: Finding, report: Report) -> str:
    safety = report.fix_safety.get(finding.fix or "")
    return f"{finding.fix} ({safety})" if safety else ""


def _repair(repair: Repair) -> Card:
    blocks: list[Block] = [Paragraph(repair.reason)] if repair.reason else []
    blocks += map(Paragraph, repair.notes)
    if repair.restart:
        blocks.append(Paragraph(f"restart afterwards: {repair.restart}"))
    if lines := tuple(repair.diff.splitlines()):
        diff = Listing(lines, Language.DIFF)
        blocks.append(diff if len(lines) <= _SHORT else Fold(counted(len(lines), "line"), (diff,)))
    return Card(f"{repair.code}: {repair.title} ({repair.outcome}, {repair.safety})", tuple(blocks))
