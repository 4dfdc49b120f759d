"""The report for a person: verdict first, then what to do next, then the evidence."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.text import Text

from verl_doctor.toolkit import render_nodes
from verl_doctor.toolkit.result import CheckResult, PathVerdict, Repair, Report
from verl_doctor.toolkit.result_words import (
    NOT_KNOWN,
    STARTS,
    STOPS,
    by_reason,
    fate_of,
    for_target,
    from_facts_file,
    headline,
    next_steps,
    nothing_found,
    options_of,
    stopped_by,
    target_of,
)
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import counted, harmless, listed, wrapped

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
_PATHS: Final = {STOPS: "red", STARTS: "green", NOT_KNOWN: "magenta"}
_OUTCOMES: Final = {"repaired": "bold green", "planned": "bold cyan"}
_SEVERITY_STYLE: Final = {"error": "bold red", "warning": "bold yellow", "info": "cyan"}
_SEVERITY_ORDER: Final = ("error", "warning", "info")
_LABEL: Final = 8  # columns of the words "found", "wanted"... with their indent
_ALSO: Final = 4  # further places shown without -v
_NAMED: Final = 8  # rules that could not check for one reason


def render(report: Report, *, verbose: bool = False, width: int | None = None) -> Iterator[Text]:
    """Yield the lines. `width` is the terminal's, or None for a pipe: then nothing is wrapped."""
    if report.repairs is not None:
        yield from _repairs(report, report.repairs, width)
        return
    yield from _verdict(report, width)
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
    word, said = headline(report)
    first, *more = _lines(said, width, indent=len(word) + 2, first=f"{word}  ", style="bold")
    first.stylize(_STYLES[report.verdict], 0, len(word))
    yield from (first, *more)
    yield from _lines(target_of(report), width, indent=2, style="dim")
    for line in render_nodes.lines(report.nodes) if report.nodes is not None else ():
        yield from _lines(line, width, indent=4, first="  ")
    longest = max((len(path.path) for path in report.paths), default=0)
    for path in report.paths:
        yield from _path(path, longest, width)


def _path(path: PathVerdict, longest: int, width: int | None) -> Iterator[Text]:
    words, more = fate_of(path)
    style = _PATHS.get(words, "dim")
    lead = f"  {path.path:<{longest}}  "
    for number, line in enumerate(_lines(words + more, width, indent=len(lead), first=lead)):
        line.stylize("dim", len(lead))
        if number == 0:
            line.stylize(f"not dim {style}", len(lead), len(lead) + len(words))
        yield line


def _next(report: Report, width: int | None) -> Iterator[Text]:
    yield from _steps(next_steps(report), width)


def _steps(steps: Sequence[tuple[str, str]], width: int | None) -> Iterator[Text]:
    """Commands to type."""
    if steps:
        yield Text()
    for number, (command, why) in enumerate(steps):
        lead = "Next: " if number == 0 else "      "
        yield from _lines(_command(command, why), width, indent=35, first=lead)


def _command(command: str, why: str) -> str:
    return f"{command:<27}  # {why}"


def _finding(
    result: CheckResult, finding: Finding, report: Report, *, verbose: bool, width: int | None
) -> Iterator[Text]:
    severity = finding.severity or "error"
    lead = f"{result.code} {severity}  "
    head = list(_lines(finding.message, width, indent=_LABEL, first=lead))
    head[0].stylize(_SEVERITY_STYLE[severity], 0, len(lead))
    yield from head
    rows = [("stops", stopped_by(finding)), ("at", str(finding.location) if finding.location else "")]
    shown = finding.also if verbose else finding.also[:_ALSO]
    rows += [("and", str(location)) for location in shown]
    if len(finding.also) > len(shown):
        rows.append(("and", f"{len(finding.also) - len(shown)} more (-v shows them)"))
    evidence = finding.evidence
    rows += [("found", evidence.found), ("wanted", evidence.wanted)]
    if verbose or not finding.location:
        rows.append(("read", evidence.read_from))
    rows += [
        ("node", render_nodes.of(finding, verbose=verbose)),
        ("note", result.reason),
        ("do", finding.remedy),
    ]
    if finding.fix is not None and finding.fix in report.fix_safety:
        rows.append(("fix", _fix(result.code, finding.fix, report)))
    for label, text in rows:
        if text:
            yield from _lines(text, width, indent=_LABEL + 2, first=f"  {label:<{_LABEL}}")


def _fix(code: str, fix: str, report: Report) -> str:
    said = f"{fix} ({report.fix_safety[fix]})"
    return (
        said if from_facts_file(report) else f"verl-doctor fix --select {code}{options_of(report)}  # {said}"
    )


def _broken(report: Report, *, verbose: bool, width: int | None) -> Iterator[Text]:
    for reason, results in by_reason(report, "error").items():
        codes = [result.code for result in results]
        who = codes[0] if len(codes) == 1 else f"{len(codes)} rules"
        yield Text()
        yield from _lines(f"{who} could not check: {reason}", width, indent=_LABEL, style="magenta")
        if len(codes) > 1:
            named = ", ".join(codes) if verbose else listed(codes, _NAMED)
            yield from _lines(named, width, indent=_LABEL + 2, first=f"  {'rules':<{_LABEL}}")
        for trace in dict.fromkeys(result.trace for result in results) if verbose else ():
            yield from (_line(f"          {line}", "dim") for line in trace.splitlines())


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
    yield from _unjudged(report, width) if verbose else ()
    summary = report.summary
    counts = [f"{summary['pass']} passed"]
    counts += [f"{summary['not_applicable']} not applicable"] if summary["not_applicable"] else []
    counts += [f"{summary['skipped']} skipped"] if summary["skipped"] else []
    hints = sum(finding.severity == "info" for _, finding in report.findings())
    counts += [counted(hints, "hint")] if hints and not verbose else []
    unjudged = sum(len(result.unjudged) for result in report.results)
    counts += [f"{counted(unjudged, 'place')} could not be judged"] if unjudged else []
    more = "" if verbose else "; -v shows them"
    said = f"{', '.join(counts)}{more}; {report.seconds:.1f} s"
    yield from _lines(said, width, indent=2, first="", style="dim")


def _unjudged(report: Report, width: int | None) -> Iterator[Text]:
    """What rules looked at and could not tell, each with the reason."""
    for result in report.results:
        for entry in result.unjudged:
            said = f"{result.code} cannot tell {entry.what} at {entry.location}: {entry.why}"
            yield from _lines(said, width, indent=_LABEL, first="", style="dim")


def _repairs(report: Report, repairs: tuple[Repair, ...], width: int | None) -> Iterator[Text]:
    """What would be done, or what was done, and what is left."""
    yield _repair_verdict(report, repairs)
    for repair in repairs:
        yield Text()
        said = f"{repair.code} {repair.title} ({repair.safety})"
        first, *more = _lines(said, width, indent=2, first=f"{repair.outcome}  ")
        first.stylize(_OUTCOMES.get(repair.outcome, "bold yellow"), 0, len(repair.outcome))
        yield from (first, *more)
        if repair.reason:
            yield from _lines(repair.reason, width, indent=2)
        if repair.restart and repair.outcome in {"repaired", "planned"}:
            yield from _lines(f"restart afterwards: {repair.restart}", width, indent=2)
        if repair.outcome in {"planned", "not attempted", "refused"}:
            yield from (_diff_line(row) for row in repair.diff.splitlines())
    yield from _left(report, width)
    yield from _environment(report, width)
    yield from _steps(for_target(_repair_steps(report, repairs), report), width)
    undoable = [r.transaction for r in repairs if r.outcome == "repaired" and _can_be_undone(r)]
    names = [shlex.quote(name) for name in reversed(undoable) if name]
    yield from _steps([(f"verl-doctor undo {name}", "takes it back") for name in names], width)


def _repair_steps(report: Report, repairs: tuple[Repair, ...]) -> list[tuple[str, str]]:
    """How to have done what was only planned, or waits for an option."""
    planned = {repair.safety for repair in repairs if repair.outcome == "planned"}
    variables = any(
        change["kind"] == "set_variable"
        for repair in repairs
        if repair.outcome in {"planned", "not attempted"} and repair.safety != "manual"
        for change in repair.changes
    )
    folder = " --output-env DIR" if variables else ""
    if report.environment is not None:
        folder = f" --output-env {shlex.quote(str(Path(report.environment.shell).parent))}"
    steps = []
    if "safe" in planned or (variables and report.environment is None):
        done = ", and puts the variables into files in DIR" if folder.endswith(" DIR") else ""
        steps.append((f"verl-doctor fix --apply{folder}", f"carries the safe ones out{done}"))
    if "unsafe" in planned:
        why = "does those too that cannot be undone, or change what the job does"
        steps.append((f"verl-doctor fix --apply --unsafe{folder}", why))
    return steps


def _environment(report: Report, width: int | None) -> Iterator[Text]:
    """The files of the job's environment: as a diff before they are written, and then how they are used."""
    files = report.environment
    if files is None:
        return
    yield Text()
    if not files.variables:
        yield from _lines(f"No variable is needed in {files.shell}", width, indent=2)
    yield from (_diff_line(row) for row in files.diff.splitlines())
    if report.applied and files.variables:
        yield _line(f"{counted(len(files.variables), 'variable')} for the job:")
        source, ray = (shlex.quote(path) for path in (files.shell, files.runtime_env))
        here = listed((one["name"] for one in files.variables if one["node_only"]), 3)
        nodes = f"; {here}: on this node only" if here else ", on every node"
        started = f"in the shell that starts the job, and in the one that starts Ray{nodes}"
        steps = [(f"source {source}", started)]
        if any(one["ray"] is not None for one in files.variables):
            submit = f"ray job submit --runtime-env {ray} -- ..."
            steps.append((submit, "where Ray runs already, instead"))
            if files.override:
                steps.append((files.override, "or that, for each, at the end of verl's command line"))
        yield from _steps(steps, width)


def _can_be_undone(repair: Repair) -> bool:
    return all(change["kind"] != "run_command" for change in repair.changes)


def _repair_verdict(report: Report, repairs: tuple[Repair, ...]) -> Text:
    outcomes = [repair.outcome for repair in repairs]
    if not repairs:
        found = any(finding.severity != "info" for _, finding in report.findings())
        why = "no fix is known for what was found" if found else nothing_found(report)
        return Text(f"NOTHING TO REPAIR  {harmless(why)}", style="bold")
    if not report.applied:
        return Text(
            f"PLAN  {counted(outcomes.count('planned'), 'repair')}; nothing was changed", style="bold cyan"
        )
    attempted = len(outcomes) - outcomes.count("not attempted")
    if not attempted:
        return Text("NOTHING DONE  what is left is to be asked for", style="bold yellow")
    repaired = outcomes.count("repaired")
    word, style = ("REPAIRED", "bold green") if repaired == attempted else ("NOT ALL REPAIRED", "bold red")
    return Text(f"{word}  {repaired} of {attempted}", style=style)


def _left(report: Report, width: int | None) -> Iterator[Text]:
    """The rules that fail with something that no fix here is about."""
    codes = {repair.code for repair in report.repairs or ()}
    left = [
        result.code
        for result in report.results
        if result.status in {"fail", "error"}
        and (
            result.code not in codes
            or any(one.severity == "error" and not one.fix for one in result.findings)
        )
    ]
    if left:
        yield Text()
        yield from _lines(
            f"Left, without a fix: {', '.join(left)} (verl-doctor check shows them)",
            width,
            indent=2,
            first="",
        )


def _diff_line(row: str) -> Text:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "")
    return Text(harmless(row, keep="\t"), style=style)
