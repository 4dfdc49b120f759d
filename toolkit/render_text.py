"""The report for a person: verdict first, then what to do next, then the evidence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.text import Text

from verl_doctor.toolkit.result import CheckResult, PathVerdict, Repair, Report
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import counted, harmless, wrapped

_STYLES: Final = {
    "failures": "bold red",
    "fail": "bold red",
    "error": "bold magenta",
    "could_not_check": "bold magenta",
    "warnings": "bold yellow",
    "warn": "bold yellow",
    "info": "cyan",
    "ok": "bold green",
    "pass": "green",
}
_PATHS: Final = {
    "stops": ("would not start", "red"),
    "starts": ("nothing found that stops it", "green"),
    "unknown": ("could not be judged", "magenta"),
}
_SEVERITY_STYLE: Final = {"error": "bold red", "warning": "bold yellow", "info": "cyan"}
_SEVERITY_ORDER: Final = ("error", "warning", "info")
_LABEL: Final = 8  # columns of the words "found", "wanted"... with their indent
_ALSO: Final = 4  # further places shown without -v


def render(report: Report, *, verbose: bool = False, width: int | None = None) -> Iterator[Text]:
    """Yield the lines. `width` is the terminal's, or None for a pipe: then nothing is wrapped."""
    yield from _verdict(report, width)
    if report.repairs is not None:
        yield from _repairs(report.repairs, width)
    yield from _next(report, width)
    for severity in _SEVERITY_ORDER:
        for result, finding in report.findings():
            if finding.severity == severity and (verbose or severity != "info"):
                yield Text()
                yield from _finding(result, finding, report, verbose=verbose, width=width)
    yield from _broken(report, verbose=verbose, width=width)
    yield from _rest(report, verbose=verbose, width=width)


def _line(text: str, style: str = "") -> Text:
    return Text(harmless(text), style=style)


def _lines(
    text: str, width: int | None, *, indent: int, style: str = "", first: str | None = None
) -> Iterator[Text]:
    """Wrap one thing that is to be said, its first line led by `first` instead of blanks."""
    blank = " " * indent
    for line in wrapped(harmless(text), width, indent=blank if first is None else first, hanging=blank):
        yield Text(line, style=style)


def _verdict(report: Report, width: int | None) -> Iterator[Text]:
    summary = report.summary
    counts = [counted(summary["fail"], "failure") if summary["fail"] else ""]
    counts += [f"{counted(summary['error'], 'rule')} could not check" if summary["error"] else ""]
    counts += [counted(summary["warn"], "warning") if summary["warn"] else ""]
    said = ", ".join(filter(None, counts)) or f"nothing wrong found by {counted(summary['pass'], 'rule')}"
    word = {"failures": "FAIL", "could_not_check": "COULD NOT CHECK", "warnings": "WARN", "ok": "OK"}[
        report.verdict
    ]
    line = Text(word, style=_STYLES[report.verdict])
    line.append(f"  {said}", style="bold")
    yield line
    yield from _lines(_target(report), width, indent=2, style="dim")
    longest = max((len(path.path) for path in report.paths), default=0)
    for path in report.paths:
        yield from _path(path, longest)


def _target(report: Report) -> str:
    target = report.target
    parts = [f"Python {target['python_version']}" if target["python_version"] else ""]
    for name, label in (("verl", "verl"), ("vllm", "vLLM")):
        tree = target[name]
        parts.append(
            f"{label} {tree['version'] or 'of unknown version'} ({tree['found_in']})"
            if tree
            else f"no {label}"
        )
    where = target["python"] or target["chosen_by"]
    return f"{', '.join(filter(None, parts))}; {where}"


def _path(path: PathVerdict, longest: int) -> Iterator[Text]:
    words, style = _PATHS[path.state]
    line = Text(f"  {path.path:<{longest}}  ")
    line.append(words, style=style)
    if path.because:
        line.append(f": {', '.join(path.because)}", style="dim")
    yield line


def _next(report: Report, width: int | None) -> Iterator[Text]:
    """What to type now. After a repair the repairs themselves say it."""
    fixes = {
        finding.fix: report.fix_safety.get(finding.fix) for _, finding in report.findings() if finding.fix
    }
    safe = sum(safety == "safe" for safety in fixes.values())
    steps = []
    if report.repairs is None and safe:
        what = f"{safe} of the findings" if len(fixes) > safe else "what was found"
        steps.append(("verl-doctor fix", f"shows the repair of {what} as a diff and changes nothing"))
        steps.append(("verl-doctor fix --apply", "repairs, checks again, and can be undone"))
    elif report.repairs is None and fixes:
        steps.append(("verl-doctor fix", "shows what would help"))
    worst = next((r for r in report.results if r.status == "fail"), None)
    if worst is not None:
        steps.append((f"verl-doctor explain {worst.code}", "why it matters"))
    for number, (command, why) in enumerate(steps):
        lead = "Next: " if number == 0 else "      "
        if number == 0:
            yield Text()
        yield from _lines(f"{command:<24}  {why}", width, indent=32, first=lead)


def _finding(
    result: CheckResult, finding: Finding, report: Report, *, verbose: bool, width: int | None
) -> Iterator[Text]:
    severity = finding.severity or "error"
    lead = f"{result.code} {severity}  "
    head = list(_lines(finding.message, width, indent=_LABEL, first=lead))
    head[0].stylize(_SEVERITY_STYLE[severity], 0, len(lead))
    yield from head
    rows = [("at", str(finding.location) if finding.location else "")]
    shown = finding.also if verbose else finding.also[:_ALSO]
    rows += [("and", str(location)) for location in shown]
    if len(finding.also) > len(shown):
        rows.append(("and", f"{len(finding.also) - len(shown)} more (-v shows them)"))
    evidence = finding.evidence
    rows += [("found", evidence.found), ("wanted", evidence.wanted)]
    if verbose or not finding.location:
        rows.append(("read", evidence.read_from))
    rows += [("node", finding.node or ""), ("do", finding.remedy)]
    if finding.fix in report.fix_safety:
        rows.append(("fix", f"{finding.fix} ({report.fix_safety[finding.fix]})"))  # type: ignore[index]
    for label, text in rows:
        if text:
            yield from _lines(text, width, indent=_LABEL + 2, first=f"  {label:<{_LABEL}}")


def _broken(report: Report, *, verbose: bool, width: int | None) -> Iterator[Text]:
    for result in report.results:
        if result.status == "error":
            yield Text()
            yield from _lines(
                f"{result.code} could not check: {result.reason}", width, indent=_LABEL, style="magenta"
            )
            if verbose:
                yield from (_line(f"          {line}", "dim") for line in result.trace.splitlines())


def _rest(report: Report, *, verbose: bool, width: int | None) -> Iterator[Text]:
    """The rules that found nothing: counted, or with -v listed."""
    quiet = [result for result in report.results if result.status in {"pass", "skipped", "not_applicable"}]
    ignored = [result for result in quiet if result.reason.startswith("ignored until")]
    if quiet or ignored:
        yield Text()
    for result in quiet if verbose else ignored:
        status = result.status.replace("_", " ")
        said = f"{result.code} {status:<15} {result.title}" + (f" ({result.reason})" if result.reason else "")
        yield from _lines(said, width, indent=26, first="", style="dim")
    summary = report.summary
    counts = [f"{summary['pass']} passed"]
    counts += [f"{summary['not_applicable']} not applicable"] if summary["not_applicable"] else []
    counts += [f"{summary['skipped']} skipped"] if summary["skipped"] else []
    hints = sum(finding.severity == "info" for _, finding in report.findings())
    counts += [counted(hints, "hint")] if hints and not verbose else []
    more = "" if verbose else "; -v shows them"
    yield _line(f"{', '.join(counts)}{more}; {report.seconds:.1f} s", "dim")


def _repairs(repairs: tuple[Repair, ...], width: int | None) -> Iterator[Text]:
    yield Text()
    if not repairs:
        yield Text("No fix is known for what was found.")
    for repair in repairs:
        style = {"repaired": "bold green", "planned": "bold cyan"}.get(repair.outcome, "bold yellow")
        line = Text(f"{repair.outcome}", style=style)
        line.append(f"  {repair.code} {repair.title} ({repair.safety})", style="")
        yield line
        if repair.reason:
            yield from _lines(repair.reason, width, indent=2)
        if repair.restart and repair.outcome in {"repaired", "planned"}:
            yield from _lines(repair.restart, width, indent=2, style="dim")
        for row in repair.diff.splitlines():
            yield _diff_line(row)


def _diff_line(row: str) -> Text:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "")
    return Text(harmless(row, keep="\t"), style=style)
