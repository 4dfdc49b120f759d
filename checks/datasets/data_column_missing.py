"""DATA104: a column that verl reads from every row is missing."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from verl_doctor.checks.datasets._data import (
    DEMANDS,
    EVERY,
    NEVER,
    TABLE,
    VALIDATION,
    first_validation,
    location,
    tables,
    used,
)
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.corrections import Healed, healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Phase, Subject, check
from verl_doctor.toolkit.text import listed

_FILTERS = "data.filter_overlong_prompts"
_NO_PROMPT = tables(Column(name="prompt", kind=""), Column(name="question", kind="string"))
_NO_REWARD = tables(Column(name="reward_model", kind=""))
_BARE = replace(
    TABLE,
    file=VALIDATION,
    columns=(Column(name="prompt", kind="list<struct<content: string, role: string>>"),),
)
_NO_TRUTH = tables(Column(name="reward_model", kind="struct<answer: string, style: string>"))


def _examples() -> list[Example]:
    return [
        Example("every column exists", (tables(), DEMANDS)),
        Example(
            "the prompt column has another name, and the job sets it",
            (_NO_PROMPT, replace(DEMANDS, prompt="question")),
        ),
        Example("a reward manager of the job's own", (_NO_REWARD, replace(DEMANDS, source="", truth=""))),
        Example("no prompt", (_NO_PROMPT, DEMANDS), "no column prompt"),
        Example("no reward model", (_NO_REWARD, DEMANDS), "no column reward_model"),
        Example(
            "a validation file that the job never reads rows of",
            (DataTables((_BARE,)), DEMANDS, *configured(*NEVER)),
        ),
        Example(
            "a validation file",
            (DataTables((_BARE,)), DEMANDS, *configured(*NEVER, f"++{EVERY}=5")),
            "no column data_source",
        ),
        Example(
            "no prompt in a validation file whose long prompts are left out",
            (DataTables((replace(_BARE, columns=()),)), DEMANDS, *configured(*NEVER, f"++{_FILTERS}=True")),
            "has no column prompt",
        ),
        Example(
            "a reward model without a ground truth",
            (_NO_TRUTH, DEMANDS),
            "no ground_truth in the column reward_model",
        ),
    ]


@check("DATA104", phase="first batch", examples=_examples)
def data_column_missing(
    tables: DataTables, demands: DataDemands, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """A column that verl reads from every row is missing.

    ## Why it matters

    verl reads the prompt when it loads the data. It reads `data_source` and `reward_model.ground_truth` only
    for the first reward, after the model is loaded and the first rollout is done: `KeyError: 'reward_model'`.
    A reward function of your own receives them too. Of a validation file they are read at the first
    validation only.

    ## How to fix

    Add the column when you generate the data. If it has another name, set `data.prompt_key` or,
    before verl 0.7, `data.reward_fn_key`.
    """
    keys = {demands.prompt: "data.prompt_key"}
    if demands.source_by:
        keys[demands.source] = demands.source_by
    owner, _, inner = demands.truth.partition(".")
    for table, phase, read in _read(tables, demands, configuration):
        names = [column.name for column in table.columns]
        missing = [name for name in read if name and name not in names]
        problems = [f"no column {name}" for name in missing]
        absent = list(missing)
        kind = table.kind(owner) if owner in read else ""
        if inner and kind.startswith("struct<") and f"{inner}:" not in kind:
            problems.append(f"no {inner} in the column {owner}")
            absent.append(demands.truth)
        if problems:
            hints = [_other_name(name, keys[name], names) for name in missing if name in keys]
            yield Finding(
                f"{table.file.path} has {' and '.join(problems)}",
                Evidence(
                    listed(names, 12),
                    ", ".join(filter(None, (demands.prompt, demands.source, demands.truth))),
                    demands.read_from,
                ),
                location=location(table.file),
                remedy=", or ".join(["add what is missing when you generate the data", *hints]),
                subject=Subject("column", ",".join(absent), table.file.path),
                phase=phase,
                **_healed(absent, keys, names, configuration),
            )


def _healed(
    absent: list[str], keys: Mapping[str, str], names: list[str], configuration: Configuration | Unknown
) -> Healed:
    """Where only a column that a setting names is missing: the similar one, or verl's own name for it."""
    if isinstance(configuration, Unknown) or len(absent) != 1 or absent[0] not in keys:
        return {}
    key = keys[absent[0]]
    default = configuration.default(key)
    near = (
        default if default in names else next(iter(difflib.get_close_matches(absent[0], names, 1, 0.5)), "")
    )
    if not near:
        return {}
    effect = f"verl reads the column {near} instead of {absent[0]}"
    return healed("DATA104", settings(configuration, {key: near}, effect=effect))


def _read(
    tables: DataTables, demands: DataDemands, configuration: Configuration | Unknown
) -> Iterator[tuple[Table, Phase | None, tuple[str, ...]]]:
    """Yield each table with the columns that are certainly read of it, and when."""
    every = (demands.prompt, demands.source, demands.truth.partition(".")[0])
    for table, phase in used(tables, configuration):
        if table.file.kind in demands.kinds:
            yield table, phase, every
    # A row whose prompt cannot be measured counts as too long: none is left, and verl ends with an empty
    # validation set.
    filters = isinstance(configuration, Configuration) and configuration.get(_FILTERS) is True
    if filters and first_validation(configuration) == "never":
        for table in tables.of("val"):
            if table.file.kind in demands.kinds:
                yield table, "workers", (demands.prompt,)


def _other_name(missing: str, key: str, names: list[str]) -> str:
    near = difflib.get_close_matches(missing, names, n=1, cutoff=0.5)
    return f"set {key}={near[0] if near else 'NAME'} if it has another name"
