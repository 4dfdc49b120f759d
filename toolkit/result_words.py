"""What a report comes to in words, whichever view shows it: the verdict, the target, what to type next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from verl_doctor.toolkit.result import CheckResult, PathVerdict, Report, Status, Verdict
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import counted

STOPS, STARTS, NOT_KNOWN = "would not start", "nothing found that stops it", "could not be judged"
_FATES: Final = {"stops": STOPS, "starts": STARTS, "unknown": NOT_KNOWN}
_WORDS: Final[Mapping[Verdict, str]] = {
    "failures": "FAIL",
    "could_not_check": "COULD NOT CHECK",
    "warnings": "WARN",
    "ok": "OK",
}


def headline(report: Report) -> tuple[str, str]:
    """One to three words, and what was found in numbers."""
    severities = Counter(finding.severity for _, finding in report.findings())
    broken = report.summary["error"]
    counts = [counted(severities["error"], "error") if severities["error"] else ""]
    counts += [f"{counted(broken, 'rule')} could not check" if broken else ""]
    counts += [counted(severities["warning"], "warning") if severities["warning"] else ""]
    return _WORDS[report.verdict], ", ".join(filter(None, counts)) or nothing_found(report)


def nothing_found(report: Report) -> str:
    """Never praise what was not looked at."""
    if passed := report.summary["pass"]:
        return f"nothing wrong found by {counted(passed, 'rule')}"
    reasons = dict.fromkeys(result.reason for result in report.results if result.reason)
    return f"nothing was judged: {'; '.join(list(reasons)[:2])}" + ("; ..." if len(reasons) > 2 else "")


def target_of(report: Report) -> str:
    """What was examined, in a line."""
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
        if tree["found_in"] == f"--{name}"
    ]
    where = target["python"] or target["chosen_by"]
    return f"{', '.join(filter(None, parts))}; {where}"


def fate_of(path: PathVerdict) -> tuple[str, str]:
    """Whether a path of a job would start, in a few words, and what is to be added to them."""
    words = _FATES[path.state]
    if path.because:
        return words, f": {', '.join(path.because)}"
    if path.state == "starts" and path.may_stop:
        return words, f" by default; under some settings: {', '.join(path.may_stop)}"
    if path.not_asked:
        return "not judged", f": {', '.join(path.not_asked)} not selected"
    return words, ""


def stopped_by(finding: Finding) -> str:
    """Which paths end here, and when; "" when the rule does not tell when."""
    when = {"import": "while its modules are imported", "start": "at engine start or later"}.get(
        finding.phase or ""
    )
    return f"{', '.join(finding.stops)}, {when}" if finding.stops and when else ""


def next_steps(report: Report) -> Sequence[tuple[str, str]]:
    """Commands to type now, each with its reason. A facts file can be judged, not repaired."""
    if from_facts_file(report):
        return ()
    # A hint is repaired when its rule is asked for by name.
    fixes = {
        finding.fix: report.fix_safety.get(finding.fix)
        for _, finding in report.findings()
        if finding.fix and finding.severity != "info"
    }
    steps = [("verl-doctor fix", "shows what would help as a diff, and changes nothing")] if fixes else []
    if "safe" in fixes.values():
        steps.append(("verl-doctor fix --apply", "repairs what is safe to repair, and can be undone"))
    worst = next((result for result in report.results if result.status == "fail"), None)
    explained = [(f"verl-doctor explain {worst.code}", "why it matters")] if worst is not None else []
    return [*for_target(steps, report), *explained]


def for_target(steps: Iterable[tuple[str, str]], report: Report) -> list[tuple[str, str]]:
    """The commands with the options that make them examine the same target."""
    return [(command + options_of(report), why) for command, why in steps]


def options_of(report: Report) -> str:
    """The options that name the target, each behind a blank."""
    return "".join(f" {shlex.quote(word)}" for word in report.target["arguments"])


def from_facts_file(report: Report) -> bool:
    """Whether it is about what was seen elsewhere."""
    return bool(report.target["arguments"][:1] == ["--facts"])


def by_reason(report: Report, *statuses: Status) -> Mapping[str, Sequence[CheckResult]]:
    """The results with these statuses by their reason: one cause is said once."""
    found: dict[str, list[CheckResult]] = {}
    for result in report.results:
        if result.status in statuses:
            found.setdefault(result.reason, []).append(result)
    return found
