"""The head of a report: which paths of a job would start, what was examined, which nodes answered, and the next commands."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.commands.report.page import (
    Block,
    Fold,
    Language,
    Listing,
    Mark,
    Points,
    Rank,
    Section,
    Table,
)
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.render import nodes as render_nodes
from verl_doctor.toolkit.render.result_words import fate_of, next_steps, target_of
from verl_doctor.toolkit.result import NodeGroup, Report
from verl_doctor.toolkit.verdict import Verdict

_COMMAND = 44  # columns before the reason of a command

MARKS: dict[Verdict, Mark] = {
    "failures": Mark.BAD,
    "could_not_check": Mark.BROKEN,
    "warnings": Mark.DOUBTFUL,
    "ok": Mark.GOOD,
}


def sections(seen: Seen) -> Iterator[Section]:
    """Yield the top of the page."""
    report = seen.report
    blocks: list[Block] = [Points(tuple(_examined(seen)))]
    if report.paths:
        rows = tuple((path.path, "".join(fate_of(path))) for path in report.paths)
        blocks.append(Table(("path of the job", "verdict"), rows))
    yield Section("What was examined", tuple(blocks), Rank.VERDICT)
    if steps := next_steps(report):
        lines = tuple(f"{command:<{_COMMAND}}  # {why}" for command, why in steps)
        yield Section("What to do next", (Listing(lines, Language.SHELL),), Rank.VERDICT)
    if report.nodes is not None:
        yield Section("Nodes", tuple(_nodes(report)), Rank.FINDINGS)


def _examined(seen: Seen) -> Iterator[str]:
    yield target_of(seen.report)
    if seen.report.target["passed_over"]:
        yield f"not the active one: {seen.report.target['passed_over']}"


def _nodes(report: Report) -> Iterator[Block]:
    nodes = report.nodes
    if nodes is None:
        return
    yield Points(tuple(render_nodes.lines(nodes)))
    if groups := [*_rows(nodes.kinds), *_rows(nodes.missing, "no answer: ")]:
        yield Fold("All nodes by kind", (Table(("what", "nodes", "which"), tuple(groups)),))


def _rows(groups: tuple[NodeGroup, ...], lead: str = "") -> Iterator[tuple[str, str, str]]:
    for group in groups:
        yield lead + (group.what or "without a GPU"), f"{group.count:,}", group.nodes or "most of them"
