"""The data of a report: one examination with its plans, and whatever else was requested."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.commands.report.network import Tried
from verl_doctor.toolkit.comparison.judge import Comparison
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.logs.document import Answer
from verl_doctor.toolkit.result import Report


@dataclass(frozen=True)
class Seen:
    """`facts` are those of one machine: the one that was looked at, or the one that `facts_of` names among several, `engine.examination.HERE` or a node.

    `version` is the doctor's, `taken` in UTC (ISO 8601). `log` is what the logs tell and `compared` what is not as it was where the job worked, `indexes` how the package indexes answered, None
    where nobody asked.
    """

    report: Report
    facts: Facts
    version: str
    taken: str
    facts_of: str = ""
    log: Answer | None = None
    compared: Comparison | None = None
    indexes: tuple[Tried, ...] | None = None
