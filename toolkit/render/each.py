"""Launch files that were judged as separate jobs, in the format of compilers and linters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.engine.checkout import path_in
from verl_doctor.toolkit.render.result_words import silenced_errors, waiting
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import Location
from verl_doctor.toolkit.text import counted, harmless


def lines(report: Report, cwd: Path) -> Iterator[str]:
    """Yield a line for each finding, as compilers and linters print it, in the order of files and lines.

    Then the rules that wait for others are counted by file, and the files by verdict.
    """
    found = [
        (place.path, place.line or 0, result.code, finding)
        for result, finding in report.findings()
        if (place := finding.location) is not None and finding.severity != "info"
    ]
    for path, line, code, finding in sorted(found, key=lambda row: row[:3]):
        place = Location(path_in(cwd, path) or path, line or None)
        yield harmless(f"{place}: {code} {finding.severity}: {finding.message}")
    for job in report.jobs:
        if job.waiting:
            yield harmless(f"{path_in(cwd, job.file) or job.file}: {waiting(job.waiting)}")
    verdicts = Counter(job.verdict for job in report.jobs)
    parts = [
        f"{counted(len(report.jobs), 'script')} judged",
        f"{verdicts['failures']} will fail",
        f"{verdicts['could_not_check']} not checked",
    ]
    yield harmless(", ".join(filter(None, (*parts, silenced_errors(report)))))
