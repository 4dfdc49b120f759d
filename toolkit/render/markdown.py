"""The report as Markdown, to paste into a ticket."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.console.markdown_text import code, escaped, fenced
from verl_doctor.toolkit.render import nodes
from verl_doctor.toolkit.render.result_words import fate_of, headline, repair_command
from verl_doctor.toolkit.result import EnvironmentFiles, Report
from verl_doctor.toolkit.rule import Finding


def render(report: Report) -> Iterator[str]:
    """Yield the lines."""
    word, sentence = headline(report)
    yield f"## verl-doctor: {word}"
    yield ""
    yield escaped(sentence)
    yield ""
    for name in ("python", "python_version"):
        yield f"* {name.replace('_', ' ')}: {code(report.target[name])}"
    for name in ("verl", "vllm"):
        tree = report.target[name]
        yield f"* {name}: " + (
            f"{escaped(tree['version'])} in {code(tree['folder'])}" if tree else "not found"
        )
    if report.nodes is not None:
        yield from (f"* {escaped(line)}" for line in nodes.lines(report.nodes))
    yield from (f"* {path.path}: {''.join(fate_of(path))}" for path in report.paths)
    yield ""
    yield "| code | status | rule | reason |"
    yield "|---|---|---|---|"
    for result in report.results:
        status = result.status.replace("_", " ")
        yield f"| {result.code} | {status} | {escaped(result.title)} | {escaped(result.reason)} |"
    for result, finding in report.findings():
        yield ""
        yield f"### {result.code} {finding.severity}: {escaped(finding.message)}"
        yield ""
        yield from _finding(result.code, finding, report)
    for repair in report.repairs or ():
        yield ""
        yield f"### {repair.outcome}: {repair.code} {escaped(repair.title)}"
        yield ""
        if repair.reason:
            yield escaped(repair.reason)
        if repair.diff:
            yield from fenced(repair.diff, "diff")
    if report.environment is not None:
        yield from _environment(report.environment)


def _environment(files: EnvironmentFiles) -> Iterator[str]:
    yield ""
    yield "### The files of the job's environment"
    yield ""
    yield f"* to source: {code(files.shell)}"
    yield f"* for Ray: {code(files.runtime_env)}"
    for variable in files.variables:
        yield f"* {code(variable['name'])}: {escaped('; '.join(variable['reasons']))}"
    if files.diff:
        yield from fenced(files.diff, "diff")


def _finding(rule: str, finding: Finding, report: Report) -> Iterator[str]:
    if finding.location:
        yield f"* at {code(str(finding.location))}"
    yield from (f"* and {code(str(location))}" for location in finding.also)
    for label, text in (
        ("found", finding.evidence.found),
        ("expected", finding.evidence.wanted),
        ("read from", finding.evidence.read_from),
        ("node", nodes.of(finding)),
        ("do", finding.remedy),
    ):
        if text:
            yield f"* {label}: {escaped(text)}"
    if command := repair_command(rule, finding, report):
        yield f"* fix: {code(command)}"
