"""DATA106: verl has no reward function for a source of the data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import (
    EVERY,
    NEVER,
    TABLE,
    VALIDATION,
    location,
    tables,
    takes_part,
    used,
)
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.data_demands import ScoredSources
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import closest, listed

_SCORES = "/env/verl/utils/reward_score/__init__.py"
_NAMES = ("openai/gsm8k", "lighteval/MATH")
_SHOWN = 4
_INTEGERS = tables(Column(name="data_source", kind="int64")).tables[0]
_VALIDATED = DataTables((replace(_INTEGERS, file=VALIDATION),))
_ANY_TEXT = ScoredSources(refused=(), names=_NAMES, read_from=_SCORES, column="data_source")
_MIXED = DataTables((replace(TABLE, sources=("openai/gsm8k", "mine")),))
_REFUSED = ScoredSources(refused=("mine",), names=_NAMES, read_from=_SCORES)
_NUMBER = re.compile(r"u?int\d+|float|double|bool")


def _examples() -> list[Example]:
    return [
        Example("verl scores it", (tables(), ScoredSources(refused=(), names=_NAMES, read_from=_SCORES))),
        Example(
            "a number",
            (DataTables((_INTEGERS,)), _ANY_TEXT),
            "data_source is int64",
        ),
        Example(
            "a number in a validation file that the job never reads rows of",
            (_VALIDATED, _ANY_TEXT, *configured(*NEVER)),
        ),
        Example(
            "a number in a validation file",
            (_VALIDATED, _ANY_TEXT, *configured(*NEVER, f"++{EVERY}=5")),
            "data_source is int64",
        ),
        Example(
            "verl raises for it",
            (
                tables(),
                ScoredSources(refused=TABLE.sources, names=("lighteval/MATH", "gsm8k"), read_from=_SCORES),
            ),
            "no reward function for data_source openai/gsm8k",
        ),
        Example(
            "some rows of it, and the job takes all",
            (_MIXED, _REFUSED, *configured("++data.train_max_samples=-1")),
            "no reward function for data_source mine",
        ),
        Example(
            "some rows of it, and the job takes a few rows, perhaps none of these",
            (_MIXED, _REFUSED, *configured("++data.train_max_samples=2")),
            "no reward function for data_source mine",
        ),
    ]


@check("DATA106", phase="first batch", examples=_examples)
def data_source_not_scored(
    tables: DataTables, scored: ScoredSources, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """verl has no reward function for a source of the data.

    ## Why it matters

    Without a reward function of your own, verl chooses one by the column `data_source`. If it has none, it
    raises `Reward function is not implemented for data_source=...` at the first reward, after the model is
    loaded and the first rollout is done. Rows for validation are scored at the first validation only.

    ## How to fix

    Set `custom_reward_function.path` to a file with a function `compute_score`; if the function has another
    name, set `custom_reward_function.name` to it. If verl can score data of this kind, use verl's name for it
    in the column `data_source`.
    """
    for table, phase in used(tables, configuration):
        refused = [name for name in table.sources if name in scored.refused]
        kind = table.kind(scored.column)
        if _NUMBER.fullmatch(kind):
            yield Finding(
                (
                    f"{table.file.path}: {scored.column} is {kind}, but verl chooses the reward function by "
                    "a string"
                ),
                Evidence(
                    f"{scored.column}: {kind}", f"one of {listed(scored.names, _SHOWN)}", scored.read_from
                ),
                location=location(table.file),
                remedy=(
                    "store the name of the data source, or set custom_reward_function.path to a file with "
                    "your compute_score"
                ),
                subject=Subject("file", table.file.path, scored.column),
                phase=phase,
            )
        if refused:
            near = closest(refused[0], scored.names, 0.5)
            spared = len(refused) < len(table.sources) and takes_part(tables, configuration, table.file.role)
            yield Finding(
                f"{table.file.path}: verl has no reward function for data_source {listed(refused, _SHOWN)}"
                + (f"; did you mean {near}?" if near else ""),
                Evidence(listed(refused, _SHOWN), f"one of {listed(scored.names, _SHOWN)}", scored.read_from),
                location=location(table.file),
                remedy="set custom_reward_function.path to a file with your compute_score",
                subject=Subject("file", table.file.path, ",".join(refused)),
                phase=phase,
                severity="warning" if spared else None,
            )
