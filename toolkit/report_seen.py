"""What a report is made of: one look with its plans, and what was asked for besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.collect import Facts
from verl_doctor.toolkit.compare import Difference
from verl_doctor.toolkit.log_document import Answer
from verl_doctor.toolkit.result import Report


@dataclass(frozen=True)
class Compared:
    """How it was where it worked: `what` names the snapshot, `taken` is when, "" where it does not say."""

    what: str
    taken: str
    differences: Sequence[Difference]


@dataclass(frozen=True)
class Seen:
    """`facts` are those of one machine: the one that was looked at, or the one that `facts_of` names among several.

    `version` is the doctor's, `taken` in UTC (ISO 8601). `log` is what the logs tell and `compared` what is not as it was, None
    where nobody asked.
    """

    report: Report
    facts: Facts
    version: str
    taken: str
    facts_of: str = ""
    log: Answer | None = None
    compared: Compared | None = None
