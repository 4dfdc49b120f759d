"""The report as JUnit XML: one test case per rule, for CI systems that count tests."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from verl_doctor.toolkit.result import CheckResult, NodeGroup, Repair, Report
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.text import counted, harmless


def render(report: Report) -> str:
    """Return the whole document."""
    suite = ET.Element("testsuite", name="verl-doctor", time=f"{report.seconds:.3f}")
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(report).items():
        ET.SubElement(properties, "property", name=name, value=harmless(value))
    for result in report.results:
        _case(suite, result)
    for group in report.nodes.missing if report.nodes is not None else ():
        _missing(suite, group)
    for repair in report.repairs or ():
        _repair(suite, repair)
    for attribute, child in (
        ("tests", ""),
        ("failures", "/failure"),
        ("errors", "/error"),
        ("skipped", "/skipped"),
    ):
        suite.set(attribute, str(len(suite.findall(f"testcase{child}"))))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _properties(report: Report) -> dict[str, str]:
    properties = {"verdict": report.verdict, "python": report.target["python"]}
    for name in ("verl", "vllm"):
        tree = report.target[name]
        properties[name] = f"{tree['version']} {tree['folder']}" if tree else ""
    if report.nodes is not None:
        properties["nodes"] = (
            f"{report.nodes.answered} answered, {report.nodes.agree} agree, {report.nodes.lost} did not "
            "respond"
        )
    hidden = sum(result.silenced_errors for result in report.results)
    properties |= {"silenced_errors": str(hidden)} if hidden else {}
    return properties | {path.path: path.state for path in report.paths}


def _case(suite: ET.Element, result: CheckResult) -> None:
    name = harmless(f"{result.code} {result.title}")
    case = ET.SubElement(suite, "testcase", classname="verl-doctor", name=name, time=f"{result.seconds:.4f}")
    text = "\n\n".join(_finding_text(finding) for finding in result.findings)
    if result.status == "fail":
        ET.SubElement(case, "failure", message=harmless(_first_error(result))).text = text
    elif result.status == "error":
        ET.SubElement(case, "error", message=harmless(result.reason)).text = harmless(result.trace, keep="\n")
    elif result.status in {"skipped", "not_applicable"}:
        reason = f"{result.status.replace('_', ' ')}: {result.reason}"
        ET.SubElement(case, "skipped", message=harmless(reason))
    elif text:
        ET.SubElement(case, "system-out").text = text


def _missing(suite: ET.Element, group: NodeGroup) -> None:
    """Return a test case that could not be run for all nodes that failed to respond for the same reason."""
    name = harmless(f"{counted(group.count, 'node')} did not respond")
    case = ET.SubElement(suite, "testcase", classname="verl-doctor.nodes", name=name, time="0")
    ET.SubElement(case, "error", message=harmless(group.what)).text = harmless(group.nodes)


def _finding_text(finding: Finding) -> str:
    """Return one finding with its evidence, one item per line."""
    evidence = finding.evidence
    places = " ".join(str(place) for place in (finding.location, *finding.also) if place)
    rows = {"at": places, "found": evidence.found, "expected": evidence.wanted, "read": evidence.read_from}
    rows |= {"node": finding.node or ""}
    rows |= {"do": finding.remedy, "fix": finding.fix or ""}
    lines = [
        f"{finding.severity}: {finding.message}",
        *(f"  {label}: {text}" for label, text in rows.items() if text),
    ]
    return "\n".join(harmless(line) for line in lines)


def _repair(suite: ET.Element, repair: Repair) -> None:
    """Return a separate test case for a repair, which fails unless it is repaired or only planned."""
    name = harmless(f"{repair.code} {repair.fix}: {repair.outcome}")
    case = ET.SubElement(suite, "testcase", classname="verl-doctor.repair", name=name, time="0")
    if repair.outcome == "not attempted":
        ET.SubElement(case, "skipped", message=harmless(repair.reason))
    elif repair.outcome not in {"planned", "repaired"}:
        ET.SubElement(case, "failure", message=harmless(repair.reason or repair.outcome))
    ET.SubElement(case, "system-out").text = harmless(repair.diff, keep="\n\t")


def _first_error(result: CheckResult) -> str:
    return next(finding.message for finding in result.findings if finding.severity == "error")
