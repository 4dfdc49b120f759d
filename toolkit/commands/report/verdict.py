"""The head of a report.

It shows which paths of a job would start, what was examined, which nodes answered, and the next commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePath

from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.commands.report.page import (
    Block,
    Fold,
    Language,
    Listing,
    Mark,
    PageSection,
    Points,
    Rank,
    Table,
)
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.render import nodes as render_nodes
from verl_doctor.toolkit.render.result_words import fate_of, next_steps, target_of
from verl_doctor.toolkit.result import NodeGroup, Report
from verl_doctor.toolkit.text import counted
from verl_doctor.toolkit.verdict import Verdict

_COMMAND = 44  # columns before the reason of a command
_WIDE = 110  # columns of the job's command

MARKS: dict[Verdict, Mark] = {
    "failures": Mark.BAD,
    "could_not_check": Mark.BROKEN,
    "warnings": Mark.DOUBTFUL,
    "ok": Mark.GOOD,
}


def sections(seen: Seen) -> Iterator[PageSection]:
    """Yield the top of the page."""
    report = seen.report
    blocks: list[Block] = [Points(tuple(_examined(seen)))]
    if report.paths:
        rows = tuple((path.path, "".join(fate_of(path))) for path in report.paths)
        blocks.append(Table(("path of the job", "verdict"), rows))
    blocks += _command(seen)
    yield PageSection("What was examined", tuple(blocks), Rank.VERDICT)
    if steps := next_steps(report):
        lines = tuple(f"{command:<{_COMMAND}}  # {why}" if command else f"# {why}" for command, why in steps)
        yield PageSection("What to do next", (Listing(lines, Language.SHELL),), Rank.VERDICT)
    if report.nodes is not None:
        yield PageSection("Nodes", tuple(_nodes(report)), Rank.FINDINGS)


def _examined(seen: Seen) -> Iterator[str]:
    yield target_of(seen.report)
    if seen.report.target["passed_over"]:
        yield f"not the active one: {seen.report.target['passed_over']}"


def _command(seen: Seen) -> Iterator[Block]:
    """Yield the command that starts the job, as the launch script makes it."""
    launch = seen.facts.get(Launch)
    if isinstance(launch, Unknown) or launch.command is None:
        return
    command = launch.command
    lines = [command.module]
    for word in command.words:
        text = word.written or "?" if word.text is None else shlex.quote(word.text)
        if len(lines) == 1 or len(lines[-1]) + len(text) > _WIDE:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {text}"
    title = (
        f"{PurePath(command.path).name}:{command.line} starts {command.module}, "
        f"{counted(len(command.words), 'word')}"
    )
    yield Fold(title, (Listing(tuple(lines), Language.SHELL),))


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
