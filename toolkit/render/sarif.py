"""The report as SARIF 2.1.0, for code scanning and for editors.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.console.masked import masked, masked_text
from verl_doctor.toolkit.engine.checkout import checkout, path_in
from verl_doctor.toolkit.engine.session import version
from verl_doctor.toolkit.render.result_words import headline
from verl_doctor.toolkit.render.sarif_fixes import artifact_changes
from verl_doctor.toolkit.result import CheckResult, Repair, Report
from verl_doctor.toolkit.rule import Check, Finding, Location
from verl_doctor.toolkit.system.website import page_of
from verl_doctor.toolkit.text import counted, harmless

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_TOP = "%SRCROOT%"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_URL = re.compile(r"https://[^\s<>)\"'`]+[^\s<>)\"'`.,;:]")


def render(report: Report, rules: Iterable[Check], cwd: Path, code: int) -> str:
    """Return the whole document. `code` is the command's exit code."""
    view = _View(report, tuple(rules), checkout(cwd))
    return json.dumps(masked(view.document(code)), indent=2) + "\n"


class _View:
    """One report being converted.

    `top` is the checkout: files in it are named by their path relative to it.
    """

    def __init__(self, report: Report, rules: tuple[Check, ...], top: Path) -> None:
        shown = {result.code for result in report.results if result.findings or _is_unjudged(result)}
        self._report, self._top = report, top
        self._rules = [rule for rule in rules if rule.code in shown]
        self._index = {rule.code: number for number, rule in enumerate(self._rules)}
        self._seen: Counter[str] = Counter()

    def document(self, code: int) -> dict[str, Any]:
        driver = {
            "name": "verl-doctor",
            "version": version(),
            "rules": list(map(_descriptor, self._rules)),
        }
        run = {
            "tool": {"driver": driver},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {_TOP: {"uri": f"{self._top.as_uri().rstrip('/')}/"}},
            "invocations": [self._invocation(code)],
            "results": [self._result(result, finding) for result, finding in self._report.findings()],
        }
        return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}

    def _invocation(self, code: int) -> dict[str, Any]:
        return {
            "executionSuccessful": self._report.verdict != "could_not_check",
            "exitCode": code,
            "toolExecutionNotifications": list(self._notifications()),
        }

    def _notifications(self) -> Iterator[dict[str, Any]]:
        """Yield what could not be judged, and what was silenced: neither a finding nor a pass."""
        for result in self._report.results:
            if _is_unjudged(result):
                level = "error" if result.status == "error" else "note"
                text = f"{result.code} {result.status}: {result.reason}"
                yield {"level": level, "message": _message(text), "associatedRule": self._rule(result.code)}
            if result.silenced_errors:
                silenced = f"{counted(result.silenced_errors, 'error')} of {result.code} silenced"
                text = ": ".join(filter(None, (silenced, result.reason)))
                yield {"level": "note", "message": _message(text), "associatedRule": self._rule(result.code)}
        for job in self._report.jobs:
            if job.report.verdict == "could_not_check":
                text = ": ".join((path_in(self._top, job.file) or job.file, *headline(job.report)))
                place = {"physicalLocation": self._physical(Location(job.file))}
                yield {"level": "error", "message": _message(text), "locations": [place]}
        for group in self._report.nodes.missing if self._report.nodes is not None else ():
            text = f"{group.count} nodes did not respond: {group.what}: {group.nodes}"
            yield {"level": "error", "message": _message(text)}

    def _rule(self, code: str) -> dict[str, Any]:
        return {"id": code, **({"index": self._index[code]} if code in self._index else {})}

    def _result(self, result: CheckResult, finding: Finding) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "ruleId": result.code,
            "level": _LEVELS[str(finding.severity)],
            "message": _message(_sentences(finding)),
            "locations": [self._location(finding)],
            "partialFingerprints": {"verlDoctorFinding/v2": self._fingerprint(result.code, finding)},
            "properties": _properties(finding, self._report.fix_safety),
        }
        if result.code in self._index:
            entry["ruleIndex"] = self._index[result.code]
        if finding.also:
            entry["relatedLocations"] = [
                {"id": number, "physicalLocation": self._physical(place)}
                for number, place in enumerate(finding.also, 1)
            ]
        if fixes := [
            fix for repair in self._report.repairs or () for fix in self._fix(repair, result, finding)
        ]:
            entry["fixes"] = fixes
        return entry

    def _location(self, finding: Finding) -> dict[str, Any]:
        """Return a file of the checkout, or the interpreter and its description for the rest."""
        about = finding.node or "this machine"
        place = finding.location
        if place is not None and path_in(self._top, place.path):
            return {"physicalLocation": self._physical(place)}
        where = place or Location(str(self._report.target["python"]))
        return {
            "physicalLocation": self._physical(where),
            "logicalLocations": [
                {
                    "name": harmless(about),
                    "kind": "resource",
                    "fullyQualifiedName": harmless(f"{about}:{where}"),
                }
            ],
        }

    def _physical(self, place: Location) -> dict[str, Any]:
        region = {} if not place.line else {"region": {"startLine": place.line}}
        return {"artifactLocation": self._artifact(place.path), **region}

    def _artifact(self, path: str) -> dict[str, Any]:
        if inside := path_in(self._top, path):
            return {"uri": _quoted(inside), "uriBaseId": _TOP}
        return {"uri": f"file://{_quoted(str(self._top / path))}"}

    def _fingerprint(self, code: str, finding: Finding) -> str:
        """Return an identifier that is stable across runs, even when lines have moved.

        Equal findings get distinct ones.
        """
        path = finding.location.path if finding.location else ""
        about = path_in(self._top, path) or path.rpartition("/")[2]
        identity = "\0".join((code, about, *self._what(finding), finding.node or ""))
        self._seen[identity] += 1
        return hashlib.sha256(f"{identity}\0{self._seen[identity]}".encode("utf-8", "replace")).hexdigest()

    def _what(self, finding: Finding) -> tuple[str, ...]:
        """Return what a finding is about; without a subject, as in a plugin, what was found."""
        subject = finding.subject
        if subject is None:
            return (" ".join(finding.evidence.found.split()),)
        names = (path_in(self._top, name) or name for name in (subject.name, subject.detail))
        return (subject.kind, *names)

    def _fix(self, repair: Repair, result: CheckResult, finding: Finding) -> Iterator[dict[str, Any]]:
        """Yield a repair's plan, at the findings in the files that it changes.

        None that would write a masked secret.
        """
        if masked_text(repair.diff) != repair.diff:
            return
        if repair.code != result.code or repair.fix != finding.fix or finding.location is None:
            return
        changes = artifact_changes(repair.diff, self._artifact)
        at = self._artifact(finding.location.path)
        if any(change["artifactLocation"] == at for change in changes):
            yield {"description": _message(repair.title), "artifactChanges": changes}


def _quoted(path: str) -> str:
    """Return a path as a URI with the exact bytes of the file name, even where these are not UTF-8."""
    from urllib.parse import quote  # noqa: PLC0415 - no other view needs it

    try:
        return quote(path, errors="surrogateescape")
    except UnicodeEncodeError:  # from a facts file: no file can have this name
        return quote(path, errors="replace")


def _is_unjudged(result: CheckResult) -> bool:
    return result.status in {"error", "skipped"} and not result.deliberate


def _descriptor(rule: Check) -> dict[str, Any]:
    help_text = rule.documentation or rule.title
    entry: dict[str, Any] = {
        "id": rule.code,
        "shortDescription": _message(rule.title),
        "fullDescription": _message(rule.title),
        "help": {"text": help_text, "markdown": f"# {rule.code}: {rule.title}\n\n{help_text}\n"},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [rule.family], "cost": rule.cost, "since": rule.since},
    }
    if url := _help_page(rule):
        entry["helpUri"] = url
    return entry


def _help_page(rule: Check) -> str | None:
    """Return the site's page on a built-in rule, else the first address in the rule's own text."""
    is_built_in = rule.judge.__module__.startswith("verl_doctor.")
    named = _URL.search(rule.documentation)
    return (page_of(rule.code) if is_built_in else None) or (named[0] if named else None)


def _sentences(finding: Finding) -> str:
    evidence = finding.evidence
    lines = [finding.message]
    for label, text in (
        ("found", evidence.found),
        ("expected", evidence.wanted),
        ("read from", evidence.read_from),
        ("do", finding.remedy),
    ):
        lines += [f"{label}: {text}"] if text else []
    return "\n".join(lines)


def _properties(finding: Finding, fix_safety: Mapping[str, str]) -> dict[str, Any]:
    properties: dict[str, Any] = {"stops": list(finding.stops), "may_stop": list(finding.may_stop)}
    if finding.node:
        properties["node"] = harmless(finding.node)
    if finding.fix in fix_safety:
        properties["fix"] = {"id": finding.fix, "safety": fix_safety[str(finding.fix)]}
    return properties


def _message(text: str) -> dict[str, str]:
    return {"text": harmless(text, keep="\n") or "-"}
