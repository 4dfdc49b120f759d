"""Launch files that were judged as separate jobs, in the format of compilers and linters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from verl_doctor.toolkit.engine.checkout import path_in
from verl_doctor.toolkit.render.result_words import could_not_check, headline, silenced_errors, waiting
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import Location
from verl_doctor.toolkit.text import counted, harmless


def lines(report: Report, cwd: Path) -> Iterator[str]:
    """Yield a line for each finding, as compilers and linters print it, in the order of files and lines.

    Then the rules that wait for others are counted by file, what could not be judged is named, and the files
    are counted by verdict.
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
        if job.report.waiting:
            yield harmless(f"{path_in(cwd, job.file) or job.file}: {waiting(job.report.waiting)}")
    for reason, files in _not_judged(report).items():
        names = ", ".join(path_in(cwd, file) or file for file in files)
        yield harmless(reason if len(files) == len(report.jobs) else f"{names}: {reason}")
    verdicts = Counter(job.report.verdict for job in report.jobs)
    parts = [
        f"{counted(len(report.jobs), 'script')} judged",
        f"{verdicts['failures']} will fail",
        f"{verdicts['could_not_check']} not checked",
    ]
    yield harmless(", ".join(filter(None, (*parts, silenced_errors(report)))))


def _not_judged(report: Report) -> Mapping[str, Sequence[str]]:
    """Return what could not be judged, each sentence with the files that do not fail for another reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for job in report.jobs:
        verdict = job.report.verdict
        sentences = [": ".join(headline(job.report))] if verdict == "could_not_check" else []
        for sentence in (*sentences, *could_not_check(job.report)) if verdict != "failures" else ():
            found[sentence].append(job.file)
    return found
