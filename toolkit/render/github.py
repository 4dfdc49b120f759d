"""The report as workflow commands of GitHub Actions.

Each finding is an annotation, on its file where that is in the checkout.

https://docs.github.com/actions/reference/workflow-commands-for-github-actions
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from verl_doctor.toolkit.engine.checkout import checkout, path_in
from verl_doctor.toolkit.render.result_words import silenced_errors
from verl_doctor.toolkit.result import CheckResult, Report
from verl_doctor.toolkit.rule import Finding, Location
from verl_doctor.toolkit.text import counted, harmless
from verl_doctor.toolkit.verdict import WORDS

# Annotations of a level that GitHub shows per step; it drops the others (as of 2026-11).
_SHOWN = 10
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}
_LEVEL_NAMES = {"error": "error", "warning": "warning", "notice": "notice"}


def render(report: Report, cwd: Path) -> Iterator[str]:
    """Yield the findings' lines, the most serious first, then the totals, for the log.

    GitHub shows only the first lines.
    """
    top = checkout(cwd)
    found = [(_COMMANDS[str(finding.severity)], result, finding) for result, finding in report.findings()]
    counts = Counter(level for level, _, _ in found)
    for level in _LEVEL_NAMES:
        yield from (
            _annotation(level, result, finding, top)
            for own_level, result, finding in found
            if own_level == level
        )
    for result in report.results:
        if result.status == "error":
            yield _command("error", {"title": result.code}, f"{result.title}: {result.reason}")
            counts["error"] += 1
    for group in report.nodes.missing if report.nodes is not None else ():
        text = f"{counted(group.count, 'node')} did not respond: {group.what}: {group.nodes}"
        yield _command("error", {"title": "verl-doctor"}, text)
        counts["error"] += 1
    for repair in report.repairs or ():
        yield harmless(f"{repair.outcome}: {repair.code} {repair.title}")
    sums = ", ".join(counted(counts[level], noun) for level, noun in _LEVEL_NAMES.items())
    hidden = f"; {silenced}" if (silenced := silenced_errors(report)) else ""
    yield harmless(f"verl-doctor: {WORDS[report.verdict]}; {sums}{hidden}")
    if any(number > _SHOWN for number in counts.values()):
        yield f"GitHub shows {_SHOWN} annotations of a level from one step; all of them are in this log"


def _annotation(level: str, result: CheckResult, finding: Finding, top: Path) -> str:
    place = _place(finding.location, top)
    outside = f"{finding.location}: " if finding.location and not place else ""
    node = f" ({finding.node})" if finding.node else ""
    lines = [f"{outside}{finding.message}{node}"]
    for label, text in (
        ("found", finding.evidence.found),
        ("expected", finding.evidence.wanted),
        ("do", finding.remedy),
    ):
        lines += [f"{label}: {text}"] if text else []
    return _command(
        level, {**place, "title": f"{result.code} {result.title}"}, "\n".join(map(harmless, lines))
    )


def _place(location: Location | None, top: Path) -> dict[str, str]:
    if location is None or not (path := path_in(top, location.path)) or harmless(path) != path:
        return {}  # the message shows a name that the log cannot carry
    return {"file": path, **({} if location.line is None else {"line": str(location.line)})}


def _command(level: str, properties: Mapping[str, str], message: str) -> str:
    text = ",".join(f"{name}={_property(harmless(value))}" for name, value in properties.items())
    return f"::{level} {text}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
