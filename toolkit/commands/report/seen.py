"""The data of a report: one examination with its plans, and whatever else was requested."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.commands.report.network import Tried
from verl_doctor.toolkit.comparison.judge import Comparison
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.result import Report


@dataclass(frozen=True)
class Seen:
    """One examination.

    `facts` are those of one machine: the only one, or `facts_of` among several (`engine.examination.HERE` or
    a node).

    `version` is the doctor's, `taken` in UTC (ISO 8601). `log` is the diagnosis of the logs, `compared` the
    differences from where the job worked, and `indexes` how the package indexes responded; each is None if
    not requested.
    """

    report: Report
    facts: Facts
    version: str
    taken: str
    facts_of: str = ""
    log: Answer | None = None
    compared: Comparison | None = None
    indexes: tuple[Tried, ...] | None = None
