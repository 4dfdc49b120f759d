"""The result of a report as text, for every view: the verdict, the target, the next command."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

from verl_doctor.toolkit.change import Safety
from verl_doctor.toolkit.result import CheckResult, PathVerdict, Report, Status
from verl_doctor.toolkit.rule import EVERY_JOB, WHEN, Finding
from verl_doctor.toolkit.text import appended, counted, without_middle
from verl_doctor.toolkit.verdict import WORDS

SILENCED: Final = "ignored until a date"
"""The `reason_kind` of a rule of which the user's configuration silences all or some findings."""

_APPLY: Final[Mapping[Safety, str]] = {"safe": "--apply", "unsafe": "--apply --unsafe", "manual": ""}
PROPOSED_FOLDER: Final = "env"
"""For the variables of the job, where the user named no folder."""

_NAMED: Final = 4  # selected rules that are listed
_REASONS: Final = 3  # reasons why rules could not check that are shown without -v
_LONGEST: Final = 238  # characters of the sentence after the verdict; the finding has its full message
_LEAST: Final = 80  # minimum characters of the message in it


def headline(report: Report) -> tuple[str, str]:
    """Return the verdict in two or three words, and the sentence after it.

    The sentence is the fault that strikes first, or what was judged and which errors are silenced.
    """
    verdict = report.verdict
    if verdict == "failures":
        return WORDS[verdict], first_fault(report)
    if verdict == "could_not_check":
        return WORDS[verdict], "; ".join(filter(None, (_not_checked(report), silenced_errors(report))))
    warnings = sum(finding.severity == "warning" for _, finding in report.findings())
    parts = [f"by {_judged(report)}"]
    parts += [counted(warnings, "warning")] if warnings else []
    parts += [silenced_errors(report)] if silenced_errors(report) else []
    return WORDS[verdict], "; ".join(parts)


def _judged(report: Report) -> str:
    """Return how many rules judged the job, and which if few were selected."""
    codes = [result.code for result in report.results if result.status in {"pass", "warn"}]
    if "--select" not in report.target["arguments"]:
        return counted(len(codes), "rule")
    named = f" ({', '.join(codes)})" if 0 < len(codes) <= _NAMED else ""
    return f"{counted(len(codes), 'selected rule')}{named}"


def first_fault(report: Report) -> str:
    """Return when and why the job ends, from the error that strikes first."""
    result, finding = next(pair for pair in report.findings() if pair[1].severity == "error")
    place = finding.location
    where = f", {PurePath(place.path).name}{f':{place.line}' if place.line else ''}" if place else ""
    when = ", ".join(filter(None, WHEN[finding.phase])) if finding.phase else ""
    around = f"{when}{': ' if when else ''}", f" ({result.code}{where})"
    room = max(_LONGEST - sum(map(len, around)), _LEAST)
    return without_middle(finding.message, room).join(around)


def counts(report: Report) -> str:
    """Return how many errors, rules that could not check, and warnings there are; "" for none."""
    severities = Counter(finding.severity for _, finding in report.findings())
    broken = report.summary["error"]
    parts = [counted(severities["error"], "error") if severities["error"] else ""]
    parts += [f"{counted(broken, 'rule')} could not check" if broken else ""]
    parts += [counted(severities["warning"], "warning") if severities["warning"] else ""]
    parts += [silenced_errors(report)]
    return ", ".join(filter(None, parts))


def _not_checked(report: Report) -> str:
    """Return why there is no verdict."""
    if report.unexamined:
        return report.unexamined
    if report.nodes is not None and (report.nodes.lost or not report.nodes.answered):
        return f"{counted(report.nodes.lost, 'node')} did not respond"
    if broken := by_reason(report, "error"):
        return f"{counted(report.summary['error'], 'rule')} could not check: {next(iter(broken))}"
    if blind_rules := [result for result in report.results if result.blind]:
        return f"{counted(len(blind_rules), 'rule')} could not check: {blind_rules[0].reason}"
    blind = [entry for result in report.results for entry in result.unjudged if entry.paths]
    if blind:
        return f"{blind[0].what} could not be read: {blind[0].why}"
    return nothing_found(report)


def could_not_check(report: Report) -> Sequence[str]:
    """Return why rules could not check, each reason with its number of rules, and last the count of more.

    The last item is how many more reasons there are.

    Rules that were left out on purpose, follow from another fault, or do not apply here are not among them:
    -v lists those.
    """
    found = {
        reason: len(results)
        for reason, results in by_reason(report, "skipped").items()
        if results[0].reason_kind == "fact unknown"
    }
    most = sorted(found.items(), key=lambda pair: -pair[1])
    stated = [f"{counted(number, 'rule')} could not check: {reason}" for reason, number in most[:_REASONS]]
    rest = sum(number for _, number in most[_REASONS:])
    return [*stated, f"{counted(rest, 'more rule')} could not check (-v shows why)"] if rest else stated


def nothing_found(report: Report) -> str:
    """Return the sentence for a run without faults, without praising what was not checked."""
    if passed := report.summary["pass"]:
        return f"nothing wrong found by {counted(passed, 'rule')}"
    reasons = dict.fromkeys(result.reason for result in report.results if result.reason)
    why = "; ".join(list(reasons)[:2]) or "no rule ran"
    return f"nothing was checked: {why}" + ("; ..." if len(reasons) > 2 else "")


def target_of(report: Report, *, short: Callable[[str], str] = str) -> str:
    """Return what was examined, in a line. `short` shortens the path of the interpreter."""
    target = report.target
    parts = [f"Python {target['python_version']}" if target["python_version"] else ""]
    for name, label in (("verl", "verl"), ("vllm", "vLLM")):
        tree = target[name]
        parts.append(
            f"{label} {tree['version'] or 'of unknown version'} ({tree['found_in']})"
            if tree
            else f"no {label}"
        )
    parts += [
        f"{name} {tree['version'] or 'of unknown version'} ({tree['found_in']})"
        for name, tree in target.get("libraries", {}).items()
        if tree["place"] == "named"
    ]
    where = short(target["python"]) or target["chosen_by"]
    why = f" ({target['chosen_by']})" if target["python"] and target["chosen_by"] != "--python" else ""
    return f"{', '.join(filter(None, parts))}; {where}{why}"


def fate_of(path: PathVerdict) -> tuple[str, str]:
    """Return the state of a path of a job as text, and a supplement."""
    words = path.state.replace("_", " ")
    if path.state == "will_fail":
        when = f" {WHEN[path.phase][0]}" if path.phase else ""
        return words, f"{when}: {', '.join(path.codes)}"
    if path.codes:
        return words, f": {', '.join(path.codes)}"
    more = f"; under some settings: {', '.join(path.may_stop)}" if path.may_stop else ""
    return words, more + (f"; not checked: {', '.join(path.not_judged)}" if path.not_judged else "")


def stopped_by(finding: Finding) -> str:
    """Return which paths end here, and when.

    "" for anything but an error, or when the rule cannot determine when.
    """
    if finding.severity != "error" or not finding.phase:
        return ""
    return (
        f"{', '.join(stop for stop in finding.stops if stop != EVERY_JOB) or 'the job'}, "
        f"{WHEN[finding.phase][0]}"
    )


def next_steps(report: Report, *, short: Callable[[str], str] = str) -> Sequence[tuple[str, str]]:
    """Return the next commands, each with its reason; what to do by hand is a reason without a command.

    A facts file can be judged, not repaired. `short` shortens a path.
    """
    if from_facts_file(report):
        return ()
    # Next to a fault that stops the job no other deserves a command; a hint is repaired when its rule is
    # selected by name.
    wanted = {"error"} if report.verdict == "failures" else {"error", "warning"}
    found = [(result.code, finding) for result, finding in report.findings() if finding.severity in wanted]
    first = next((pair for pair in found if pair[1].severity == "error"), None)
    commands = _repair_steps(found, first, report)
    if report.unexamined:
        commands.insert(0, step_without_verl(report))
    if first is None:
        return commands
    code, finding = first
    by_hand = [] if finding.fix else _by_hand(finding, short)
    return [*by_hand, *commands, (f"verl-doctor explain {code}", "why it matters")]


def _repair_steps(
    found: Sequence[tuple[str, Finding]], first: tuple[str, Finding] | None, report: Report
) -> list[tuple[str, str]]:
    """Return the commands that show and apply the repairs of these findings.

    Their rules are selected where others have repairs too; the unsafe repair is that of the first fault.
    """
    repairable = [(code, finding) for code, finding in found if finding.fix in report.fix_safety]
    if not repairable:
        return []
    codes = list(dict.fromkeys(code for code, _ in repairable))
    others = {
        result.code
        for result, finding in report.findings()
        if finding.fix in report.fix_safety and finding.severity != "info"
    }
    select = codes if others - set(codes) else []
    steps = [(_fix("", select, "", report), "show the repairs as a diff; change nothing")]
    safe = [pair for pair in repairable if report.fix_safety[pair[1].fix or ""] == "safe"]
    if safe:
        command = _fix("--apply", select, _folder_for(safe, report), report)
        steps.append((command, "apply the safe repairs; verl-doctor undo reverts them"))
    if first in repairable and first is not None and report.fix_safety[first[1].fix or ""] == "unsafe":
        command = _fix("--apply --unsafe", [first[0]], _folder_for([first], report), report)
        steps.append((command, "apply the unsafe repair that the first fault needs"))
    return steps


def repair_command(code: str, finding: Finding, report: Report) -> str:
    """Return the command that repairs a finding, or shows the commands that do; "" if it has no fix here."""
    safety = report.fix_safety.get(finding.fix or "")
    if safety is None or from_facts_file(report):
        return ""
    folder = _folder_for([(code, finding)], report) if safety != "manual" else ""
    return _fix(_APPLY[safety], [code], folder, report)


def _fix(apply: str, codes: Sequence[str], folder: str, report: Report) -> str:
    select = f"--select {','.join(codes)}" if codes else ""
    words = filter(None, ("verl-doctor fix", apply, select, folder))
    return " ".join(words) + options_of(report, for_rule=bool(codes))


def _folder_for(found: Iterable[tuple[str, Finding]], report: Report) -> str:
    """Return the option that a repair needs which sets variables of the job."""
    needed = any(
        finding.fix in report.fixes_of_variables
        or (finding.subject is not None and finding.subject.kind == "variable" and finding.location is None)
        for _, finding in found
    )
    return output_env(report) if needed else ""


def output_env(report: Report) -> str:
    """Return the option with the folder for the variables: the one that the user named, or a proposed one."""
    files = report.environment
    folder = PROPOSED_FOLDER if files is None else str(PurePath(files.shell).parent)
    return f"--output-env {shlex.quote(folder)}"


def step_to_judge_all(report: Report) -> list[tuple[str, str]]:
    """Return the command that judges the job by all rules, if only some were selected."""
    if "--select" not in report.target["arguments"]:
        return []
    return [(f"verl-doctor check{options_of(report, for_rule=True)}", "judge the job by all rules")]


def step_without_verl(report: Report) -> tuple[str, str]:
    """Return the command that checks the same job in an environment still to be named, and its reason."""
    words = _without("--python", report.target["arguments"])
    command = " ".join(["verl-doctor check --python PATH/TO/bin/python", *map(shlex.quote, words)])
    return command, "no verl was found: name the interpreter of the job's environment"


def _by_hand(finding: Finding, short: Callable[[str], str]) -> list[tuple[str, str]]:
    """Return what to do about a finding without a fix: the place that shows it, and the remedy. No command.

    The remedy begins with its verb: what it names may be edited there, installed, or run.
    """
    if finding.location is not None and finding.location.line:
        return [("", f"{short(str(finding.location))}: {finding.remedy or finding.message}")]
    return [("", finding.remedy)] if finding.remedy else []


def for_target(steps: Iterable[tuple[str, str]], report: Report) -> list[tuple[str, str]]:
    """Return the commands with the options that make them examine the same target."""
    return [(command + options_of(report), why) for command, why in steps]


def options_of(report: Report, *, for_rule: bool = False) -> str:
    """Return the options that name the target and the selected rules, each after a blank.

    `for_rule`: the command selects one.
    """
    words = report.target["arguments"]
    return appended(_without("--select", words) if for_rule else words)


def _without(option: str, words: Sequence[str]) -> list[str]:
    """Return arguments without an option and its value."""
    if option not in words:
        return list(words)
    at = words.index(option)
    return [*words[:at], *words[at + 2 :]]


def from_facts_file(report: Report) -> bool:
    """Return whether the report is about another machine."""
    return bool(report.target["arguments"][:1] == ["--facts"])


def by_reason(report: Report, *statuses: Status) -> Mapping[str, Sequence[CheckResult]]:
    """Group the results with these statuses by reason, so that one cause is reported once."""
    found: dict[str, list[CheckResult]] = {}
    for result in report.results:
        if result.status in statuses:
            found.setdefault(result.reason, []).append(result)
    return found


def silenced_errors(report: Report) -> str:
    """Return how many errors the user's configuration hides, and of which rules; "" for none."""
    hidden = {result.code: result.silenced_errors for result in report.results if result.silenced_errors}
    return f"{counted(sum(hidden.values()), 'error')} silenced ({', '.join(hidden)})" if hidden else ""


def waiting(rules: Mapping[str, int]) -> str:
    """Return how many rules wait for others that failed, "" for none."""
    return ", ".join(
        f"{counted(number, 'rule')} {'waits' if number == 1 else 'wait'} for {code}"
        for code, number in sorted(rules.items(), key=lambda pair: (-pair[1], pair[0]))
    )


def silenced_rules(report: Report) -> Iterable[str]:
    """Yield what the user's configuration silences, one line for each reason."""
    found: dict[str, list[str]] = {}
    for result in report.results:
        if result.reason_kind == SILENCED:
            found.setdefault(result.reason, []).append(result.code)
    return (f"{', '.join(codes)}: {reason}" for reason, codes in found.items())
