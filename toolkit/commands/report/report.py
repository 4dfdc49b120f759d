"""Compose the page to paste into an issue or to send to a colleague, and mask it."""

from __future__ import annotations

from verl_doctor.toolkit.commands.report import (
    differences,
    environment,
    findings,
    log,
    system,
    unchecked,
    verdict,
)
from verl_doctor.toolkit.commands.report import time as report_time
from verl_doctor.toolkit.commands.report.page import Mark, Page, PageSection
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.logs.headline import headline as log_headline
from verl_doctor.toolkit.render.result_words import headline

_ORDER = (
    verdict,
    log,
    findings,
    differences,
    report_time,
    environment,
    system,
    unchecked,
)
MASKED = (
    "Users, hosts, addresses and home folders are masked, and what looks like a secret is omitted. Names of "
    "other folders, models and data are not masked: read the page before you post it."
)
FULL = "Only what looks like a secret is masked: this page contains names of users, hosts and addresses."


def page_of(seen: Seen, *, masked: bool) -> Page:
    """Return the page, verdict first.

    It states whether it is `masked`; the masking itself happens elsewhere.
    """
    word, mark, sentence = _verdict(seen)
    sections: tuple[PageSection, ...] = tuple(section for part in _ORDER for section in part.sections(seen))
    made = f"Made by verl-doctor {seen.version} at {seen.taken}."
    return Page(word, mark, sentence, sections, about=(made, MASKED if masked else FULL))


def _verdict(seen: Seen) -> tuple[str, Mark, str]:
    """Return the verdict here, and why the run failed if logs were given.

    A failed run outweighs a machine on which no fault was found, be it healthy or not judged.
    """
    word, sentence = headline(seen.report)
    mark = verdict.MARKS[seen.report.verdict]
    if seen.log is None or not seen.log.exit_code:
        return word, mark, sentence
    log_word, why = log_headline(seen.log)
    if mark is not Mark.BAD:
        return (
            log_word,
            Mark.BAD if seen.log.reading.first is not None else Mark.BROKEN,
            f"{why}; this machine: {word}, {sentence}",
        )
    return word, mark, f"{sentence}; the logs: {log_word}, {why}"
