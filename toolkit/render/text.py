"""The report for a person: verdict first, then what to do next, then the evidence."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.text import Text

from verl_doctor.toolkit.console.lines import lines
from verl_doctor.toolkit.console.lines import next_steps as steps_to_take
from verl_doctor.toolkit.console.paths import short
from verl_doctor.toolkit.render import nodes as render_nodes
from verl_doctor.toolkit.render.result_words import (
    PROPOSED_FOLDER,
    SILENCED,
    by_reason,
    could_not_check,
    counts,
    fate_of,
    for_target,
    from_facts_file,
    headline,
    next_steps,
    nothing_found,
    output_env,
    repair_command,
    silenced_rules,
    step_to_judge_all,
    step_without_verl,
    stopped_by,
    target_of,
    waiting,
)
from verl_doctor.toolkit.result import JOB, CheckResult, PathVerdict, Repair, Report, Status
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import counted, harmless, in_time, listed
from verl_doctor.toolkit.verdict import WORDS

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
_PATHS: Final = {"will_fail": "red", "no_fault_found": "green", "not_checked": "magenta"}
_OUTCOMES: Final = {"repaired": "bold green", "planned": "bold cyan"}
_SEVERITY_STYLE: Final = {"error": "bold red", "warning": "bold yellow", "info": "cyan"}
_SEVERITY_ORDER: Final = ("error", "warning", "info")
_LABEL: Final = 9  # columns of the labels "found", "expected"... with their indent
_WARNINGS: Final = 8  # on a terminal without -v
_EDITED: Final = 8  # lines to edit by hand that are shown
_NAMED: Final = 8  # rules that could not check for the same reason


def render(report: Report, *, verbose: bool = False, width: int | None = None) -> Iterator[Text]:
    """Yield the lines. `width` is the terminal's, or None for a pipe: then nothing is wrapped."""
    if report.repairs is not None:
        yield from _repairs(report, report.repairs, width)
        return
    yield from _verdict(report, width)
    steps = next_steps(report, short=lambda path: _place(path, report))
    yield from steps_to_take(_from_here(steps, report), width)
    yield from _findings(report, verbose=verbose, width=width)
    yield from _broken(report, verbose=verbose, width=width)
    yield from _rest(report, verbose=verbose, width=width)


def _findings(report: Report, *, verbose: bool, width: int | None) -> Iterator[Text]:
    """Yield all errors in the order in which they strike, then the warnings.

    On a terminal, only a readable number.
    """
    shown: list[tuple[CheckResult, Finding]] = []
    hidden = 0
    for severity in _SEVERITY_ORDER:
        found = [pair for pair in report.findings() if pair[1].severity == severity]
        most = _WARNINGS if severity == "warning" and width is not None else len(found)
        if verbose:
            most = len(found)
        elif severity == "info":
            continue
        shown += found[:most]
        hidden += len(found[most:])
    for number, (result, finding) in enumerate(shown):
        if verbose or number == 0:
            yield Text()
        yield from _finding(result, finding, report, verbose=verbose, width=width)
    if hidden:
        yield _line(f"and {counted(hidden, 'more warning')} (-v shows all)", "dim")


def _line(text: str, style: str = "") -> Text:
    return Text(harmless(text), style=style)


def _verdict(report: Report, width: int | None) -> Iterator[Text]:
    yield from _headline(report, width)
    if report.verdict == "failures":
        yield from lines(counts(report), width, indent=2, style="bold")
    yield from lines(target_of(report, short=lambda path: _place(path, report)), width, indent=2, style="dim")
    for line in render_nodes.lines(report.nodes) if report.nodes is not None else ():
        yield from lines(line, width, indent=4, first="  ")
    longest = max((len(path.path) for path in report.paths), default=0)
    for path in report.paths:
        if path.path != JOB:
            yield from _path(path, longest, width)
    for line in could_not_check(report) if report.verdict != "failures" else ():
        yield from lines(line, width, indent=4, first="  ", style="dim")


def _headline(report: Report, width: int | None) -> Iterator[Text]:
    word, sentence = headline(report)
    first, *more = lines(sentence, width, indent=len(word) + 2, first=f"{word}  ", style="bold")
    first.stylize(_STYLES[report.verdict], 0, len(word))
    yield from (first, *more)


def _path(path: PathVerdict, longest: int, width: int | None) -> Iterator[Text]:
    words, more = fate_of(path)
    lead = f"  {path.path:<{longest}}  "
    for number, line in enumerate(lines(words + more, width, indent=len(lead), first=lead)):
        line.stylize("dim", len(lead))
        if number == 0:
            line.stylize(f"not dim {_PATHS[path.state]}", len(lead), len(lead) + len(words))
        yield line


def _finding(
    result: CheckResult, finding: Finding, report: Report, *, verbose: bool, width: int | None
) -> Iterator[Text]:
    """Yield a finding with its place and the remedy; with -v also its evidence."""
    severity = finding.severity or "error"
    lead = f"{result.code} {severity}  "
    place = "" if verbose or finding.location is None else f" ({_place(str(finding.location), report)})"
    head = list(lines(f"{finding.message}{place}", width, indent=_LABEL, first=lead))
    head[0].stylize(_SEVERITY_STYLE[severity], 0, len(lead))
    yield from head
    rows = _evidence(finding, report) if verbose else []
    if not verbose and finding.also:
        rows.append(("and", f"{counted(len(finding.also), 'more place')} (-v shows all)"))
    rows += [
        ("node", render_nodes.of(finding, verbose=verbose)),
        ("note", "" if result.reason_kind == SILENCED else result.reason),
        ("do", finding.remedy),
    ]
    for label, text in rows:
        if text:
            yield from lines(text, width, indent=_LABEL + 2, first=f"  {label:<{_LABEL}}")
    if repair := repair_command(result.code, finding, report):
        ((command, _),) = _from_here([(repair, "")], report)
        yield _line(f"  {'fix':<{_LABEL}}{command}")  # a command to copy is never wrapped


def _evidence(finding: Finding, report: Report) -> list[tuple[str, str]]:
    rows = [("subject", finding.subject.name if finding.subject else ""), ("stops", stopped_by(finding))]
    rows += [("at", _place(str(finding.location), report))] if finding.location else []
    rows += [("and", _place(str(location), report)) for location in finding.also]
    evidence = finding.evidence
    return [
        *rows,
        ("found", evidence.found),
        ("expected", evidence.wanted),
        ("read", _place(evidence.read_from, report)),
    ]


def _from_here(steps: Sequence[tuple[str, str]], report: Report) -> list[tuple[str, str]]:
    """Return commands in which the target's paths below the current folder are relative."""
    words = {}
    for argument in report.target["arguments"]:
        name, equals, path = argument.rpartition("=")
        relative = f"{name}{equals}{short(path, home='')}"
        words[shlex.quote(argument)] = shlex.quote(relative)
    return [(" ".join(words.get(word, word) for word in command.split(" ")), why) for command, why in steps]


def _place(path: str, report: Report) -> str:
    """Return a path as this user would write it, unless it lies on another machine."""
    return path if from_facts_file(report) or report.nodes is not None else short(path)


def _broken(report: Report, *, verbose: bool, width: int | None) -> Iterator[Text]:
    for reason, results in by_reason(report, "error").items():
        codes = [result.code for result in results]
        rules = codes[0] if len(codes) == 1 else f"{len(codes)} rules"
        yield Text()
        yield from lines(f"{rules} could not check: {reason}", width, indent=_LABEL, style="magenta")
        if len(codes) > 1:
            named = ", ".join(codes) if verbose else listed(codes, _NAMED)
            yield from lines(named, width, indent=_LABEL + 2, first=f"  {'rules':<{_LABEL}}")
        for trace in dict.fromkeys(result.trace for result in results) if verbose else ():
            yield from (_line(f"          {line}", "dim") for line in trace.splitlines())


def _rest(report: Report, *, verbose: bool, width: int | None) -> Iterator[Text]:
    """Yield the rules that found nothing: counted, or with -v listed."""
    quiet = [result for result in report.results if result.status in {"pass", "skipped", "not_applicable"}]
    silenced = tuple(silenced_rules(report))
    if quiet or silenced:
        yield Text()
    yield from _quiet(report, width) if verbose else ()
    for row in (*silenced, waiting(report.waiting)):
        yield from lines(row, width, indent=_LABEL, first="", style="dim") if row else ()
    yield from _unjudged(report, width) if verbose else ()
    summary = report.summary
    parts = [counts(report)] if counts(report) else []
    parts += [f"{summary['pass']} passed"] if summary["pass"] or not parts else []
    parts += [f"{summary['not_applicable']} not applicable"] if summary["not_applicable"] else []
    parts += [f"{summary['skipped']} skipped"] if summary["skipped"] else []
    hints = sum(finding.severity == "info" for _, finding in report.findings())
    parts += [counted(hints, "hint")] if hints and not verbose else []
    unjudged = sum(len(result.unjudged) for result in report.results)
    parts += [f"{counted(unjudged, 'place')} could not be checked"] if unjudged else []
    more = "" if verbose else "; -v shows all"
    last = f"{WORDS[report.verdict]}: {', '.join(parts)}{more}; {report.seconds:.1f} s"
    if report.unchanged is not None:
        last += (
            f", {counted(report.unchanged.rules, 'result')} reused from {in_time(report.unchanged.seconds)} "
            "ago: nothing they depend on has changed"
        )
    yield from lines(last, width, indent=2, first="", style="dim")


def _quiet(report: Report, width: int | None) -> Iterator[Text]:
    """Yield the rules that found nothing, and by reason those that did not apply or were skipped."""
    passed = [result for result in report.results if result.status == "pass" and not result.findings]
    if passed:
        yield _line("Looked for, and not found:", "dim")
    for result in passed:
        row = f"{result.title} ({result.reason})" if result.reason else result.title
        yield from lines(row, width, indent=_LABEL + 2, first=f"  {result.code:<{_LABEL}}", style="dim")
    others: tuple[tuple[str, Status], ...] = (("Not applicable:", "not_applicable"), ("Skipped:", "skipped"))
    for title, status in others:
        groups = by_reason(report, status)
        if groups:
            yield _line(title, "dim")
        for reason, results in sorted(groups.items(), key=lambda group: -len(group[1])):
            if results[0].reason_kind != SILENCED:
                codes = ", ".join(result.code for result in results)
                yield from lines(f"{reason}: {codes}", width, indent=4, first="  ", style="dim")


def _unjudged(report: Report, width: int | None) -> Iterator[Text]:
    """Yield what rules examined but could not judge, each with the reason."""
    for result in report.results:
        for entry in result.unjudged:
            text = f"{result.code} cannot check {entry.what} at {entry.location}: {entry.why}"
            yield from lines(text, width, indent=_LABEL, first="", style="dim")


def _repairs(report: Report, repairs: tuple[Repair, ...], width: int | None) -> Iterator[Text]:
    """Yield what would be done, or what was done, and what is left."""
    unknown = not repairs and report.verdict == "could_not_check"
    if not unknown:
        yield _repair_verdict(report, repairs)
    if unknown or not report.applied:
        yield from _headline(report, width)
    for repair in sorted(repairs, key=_by_outcome(report)):
        yield Text()
        text = f"{repair.code} {repair.title} ({repair.safety})"
        first, *more = lines(text, width, indent=2, first=f"{repair.outcome}  ")
        first.stylize(_OUTCOMES.get(repair.outcome, "bold yellow"), 0, len(repair.outcome))
        yield from (first, *more)
        if repair.reason:
            yield from lines(repair.reason, width, indent=2)
        for note in repair.notes:
            yield from lines(note, width, indent=2)
        if repair.restart and repair.outcome == "planned":
            yield from lines(f"restart afterwards: {repair.restart}", width, indent=2)
        if repair.outcome in {"planned", "not attempted", "refused"}:
            yield from (_diff_line(row) for row in repair.diff.splitlines())
    yield from _left(report, width)
    yield from _environment(report, width)
    steps = for_target(_repair_steps(report, repairs), report)
    steps += [step_without_verl(report)] if report.unexamined else []
    steps += step_to_judge_all(report) if any(repair.outcome == "repaired" for repair in repairs) else []
    standing = [repair for repair in repairs if repair.outcome in {"repaired", "still failing"}]
    undoable = [repair.transaction for repair in standing if _can_be_undone(repair)]
    names = [shlex.quote(name) for name in dict.fromkeys(reversed(undoable)) if name]
    changed = "repaired" if any(repair.outcome == "repaired" for repair in repairs) else "changed"
    undo = [(f"verl-doctor undo {name}", f"revert what was {changed}") for name in names]
    yield from steps_to_take([*_use_of_copies(repairs), *_from_here(steps, report), *undo], width)
    words = list(_last_words(report, repairs, width))
    if words:
        yield from (Text(), *words)


def _by_outcome(report: Report) -> Callable[[Repair], tuple[bool, bool]]:
    """Return a sort key: what was done, or repairs what stops the job, comes first."""
    stopping = {result.code for result, finding in report.findings() if finding.severity == "error"}
    return lambda repair: (repair.outcome not in {"planned", "repaired"}, repair.code not in stopping)


def _use_of_copies(repairs: tuple[Repair, ...]) -> Iterator[tuple[str, str]]:
    """Yield how to start the job from a copy of its environment that has the packages."""
    for repair in repairs:
        for change in repair.changes:
            if (
                repair.outcome == "repaired"
                and change["kind"] == "install_packages"
                and change["copy"] != change["environment"]
            ):
                activate = f"source {shlex.quote(change['copy'])}/bin/activate"
                yield activate, "make the script use the copy, in the shell that starts Ray and the job"


def _last_words(report: Report, repairs: tuple[Repair, ...], width: int | None) -> Iterator[Text]:
    """Yield what must be restarted, and the verdict; for a plan, the verdict after it."""
    restart = dict.fromkeys(
        repair.restart for repair in repairs if repair.outcome == "repaired" and repair.restart
    )
    if restart:
        yield from lines(f"Restart: {'; '.join(restart)}", width, indent=2, first="")
    if report.applied and (repairs or report.verdict != "could_not_check"):
        yield from _headline(report, width)
    for forecast in report.forecasts:
        command = f"fix --apply{' --unsafe' if forecast.unsafe else ''}"
        left = f": {', '.join(forecast.left)}" if forecast.left else ""
        left += " (of the selected rules)" if report.not_selected else ""
        first, *more = lines(f"After {command}: {WORDS[forecast.verdict]}{left}", width, indent=2, first="")
        first.stylize(_STYLES[forecast.verdict], len(f"After {command}: "))
        yield from (first, *more)


def _repair_steps(report: Report, repairs: tuple[Repair, ...]) -> list[tuple[str, str]]:
    """Return how to apply what was only planned, or requires an option."""
    planned = {repair.safety for repair in repairs if repair.outcome == "planned"}
    variables = any(
        change["kind"] == "set_variable"
        for repair in repairs
        if repair.outcome in {"planned", "not attempted"} and repair.safety != "manual"
        for change in repair.changes
    )
    folder = f" {output_env(report)}" if variables or report.environment is not None else ""
    steps = []
    if "safe" in planned or (variables and report.environment is None):
        done = ["apply the safe repairs"] if "safe" in planned else []
        done += (
            [f"write the variables to files in {PROPOSED_FOLDER}"]
            if report.environment is None and variables
            else []
        )
        steps.append((f"verl-doctor fix --apply{folder}", "; ".join(done)))
    if "unsafe" in planned:
        also = "also apply those" if steps else "apply the repairs"
        steps.append((f"verl-doctor fix --apply --unsafe{folder}", f"{also} that {_why_unsafe(repairs)}"))
    return steps


def _why_unsafe(repairs: tuple[Repair, ...]) -> str:
    """Return what the planned unsafe repairs do."""
    unsafe = [repair for repair in repairs if (repair.safety, repair.outcome) == ("unsafe", "planned")]
    kinds = [{change["kind"] for change in repair.changes} for repair in unsafe]
    why = ["install packages"] if any("install_packages" in found for found in kinds) else []
    why += ["cannot be undone"] if any("run_command" in found for found in kinds) else []
    why += (
        ["change the job"] if any(not found & {"install_packages", "run_command"} for found in kinds) else []
    )
    return ", ".join(why[:-1]) + (" or " if len(why) > 1 else "") + why[-1]


def _environment(report: Report, width: int | None) -> Iterator[Text]:
    """Yield the files of the job's environment.

    They appear as a diff before they are written, and then with how they are used.
    """
    files = report.environment
    if files is None:
        return
    yield Text()
    if not files.variables:
        yield from lines(f"No variable is needed in {files.shell}", width, indent=2)
    yield from (_diff_line(row) for row in files.diff.splitlines())
    if report.applied and files.variables:
        yield _line(f"{counted(len(files.variables), 'variable')} for the job:")
        source, ray = (shlex.quote(path) for path in (files.shell, files.runtime_env))
        here = listed((variable["name"] for variable in files.variables if variable["node_only"]), 3)
        nodes = f"; {here}: on this node only" if here else ", on every node"
        started = f"in the shell that starts the job, and in the one that starts Ray{nodes}"
        steps = [(f"source {source}", started)]
        if any(variable["ray"] is not None for variable in files.variables):
            submit = f"ray job submit --runtime-env {ray} -- ..."
            steps.append((submit, "where Ray runs already, instead"))
            if files.override:
                steps.append((files.override, "or that, for each, at the end of verl's command line"))
        yield from steps_to_take(steps, width)


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
        return Text("NOTHING DONE  the remaining repairs need an option, named below", style="bold yellow")
    repaired = outcomes.count("repaired")
    word, style = ("REPAIRED", "bold green") if repaired == attempted else ("NOT ALL REPAIRED", "bold red")
    return Text(f"{word}  {repaired} of {attempted}", style=style)


def _left(report: Report, width: int | None) -> Iterator[Text]:
    """Yield the errors without a fix here, each with the line to edit and its new text."""
    codes = {repair.code for repair in report.repairs or ()}
    left = [
        (result.code, finding)
        for result, finding in report.findings()
        if finding.severity == "error" and (result.code not in codes or not finding.fix)
    ]
    broken = [result.code for result in report.results if result.status == "error"]
    if left or broken:
        yield Text()
        first = list(dict.fromkeys([*(code for code, _ in left), *broken]))
        text = f"No automatic repair: {', '.join(first)} (verl-doctor check shows why)"
        yield from lines(text, width, indent=2, first="")
    for code, finding in left[:_EDITED]:
        place = f"{finding.location}: " if finding.location else ""
        text = finding.remedy or finding.message
        yield from lines(f"{code} {place}{text}", width, indent=_LABEL, first="  ")


def _diff_line(row: str) -> Text:
    style = {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "")
    return Text(harmless(row, keep="\t"), style=style)
