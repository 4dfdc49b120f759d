"""The report as JUnit XML: one test case a rule, for a CI that counts tests."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from verl_doctor.toolkit.result import CheckResult, Report
from verl_doctor.toolkit.text import harmless


def render(report: Report) -> str:
    """The whole document."""
    summary = report.summary
    suite = ET.Element(
        "testsuite",
        name="verl-doctor",
        tests=str(len(report.results)),
        failures=str(summary["fail"]),
        errors=str(summary["error"]),
        skipped=str(summary["skipped"] + summary["not_applicable"]),
        time=f"{report.seconds:.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(report).items():
        ET.SubElement(properties, "property", name=name, value=harmless(value))
    for result in report.results:
        _case(suite, result)
    for repair in report.repairs or ():
        case = ET.SubElement(suite, "system-out")
        case.text = harmless(
            f"{repair.outcome}: {repair.code} {repair.fix} {repair.reason}\n{repair.diff}", keep="\n\t"
        )
    ET.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _properties(report: Report) -> dict[str, str]:
    said = {"verdict": report.verdict, "python": report.target["python"]}
    for name in ("verl", "vllm"):
        tree = report.target[name]
        said[name] = f"{tree['version']} {tree['folder']}" if tree else ""
    return said | {path.path: path.state for path in report.paths}


def _case(suite: ET.Element, result: CheckResult) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        classname="verl-doctor",
        name=f"{result.code} {result.title}",
        time=f"{result.seconds:.4f}",
    )
    text = harmless(
        "\n".join(f"{f.severity}: {f.message} {f.location or ''}" for f in result.findings), keep="\n"
    )
    if result.status == "fail":
        ET.SubElement(case, "failure", message=harmless(_first_error(result))).text = text
    elif result.status == "error":
        ET.SubElement(case, "error", message=harmless(result.reason)).text = harmless(result.trace, keep="\n")
    elif result.status in {"skipped", "not_applicable"}:
        reason = f"{result.status.replace('_', ' ')}: {result.reason}"
        ET.SubElement(case, "skipped", message=harmless(reason))
    elif text:
        ET.SubElement(case, "system-out").text = text


def _first_error(result: CheckResult) -> str:
    return next(finding.message for finding in result.findings if finding.severity == "error")
