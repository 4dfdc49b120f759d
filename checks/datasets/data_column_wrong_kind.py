"""DATA105: a column of the data has another type than verl expects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import DEMANDS, EVERY, NEVER, TABLE, VALIDATION, location, tables, used
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted

_MESSAGES = "list<struct<role: string, content: string>>"
_PLAIN = DataTables((replace(TABLE, file=VALIDATION, columns=(Column(name="prompt", kind="string"),)),))
_ANY = ("null", "list<null>")


def _examples() -> list[Example]:
    return [
        Example("messages with role and content", (tables(), DEMANDS)),
        Example(
            "a prompt that is missing, and left out",
            (DataTables((replace(TABLE, nulls=(("prompt", 1),)),)), DEMANDS),
        ),
        Example(
            "a prompt that is missing",
            (DataTables((replace(TABLE, rows=2, nulls=(("prompt", 1),)),)), replace(DEMANDS, filters=False)),
            "prompt is null in 1 row",
        ),
        Example(
            "content in parts",
            (
                tables(
                    Column(
                        name="prompt", kind="list<struct<role: string, content: list<struct<type: string>>>>"
                    )
                ),
                DEMANDS,
            ),
        ),
        Example("no extra_info", (tables(Column(name="extra_info", kind="")), DEMANDS)),
        Example(
            "the prompt is plain text",
            (tables(Column(name="prompt", kind="string")), DEMANDS),
            "prompt is string",
        ),
        Example(
            "plain text in a validation file that the job never reads rows of",
            (_PLAIN, DEMANDS, *configured(*NEVER)),
        ),
        Example(
            "plain text in a validation file",
            (_PLAIN, DEMANDS, *configured(*NEVER, f"++{EVERY}=5")),
            "prompt is string",
        ),
        Example(
            "messages without a role",
            (tables(Column(name="prompt", kind="list<struct<content: string>>")), DEMANDS),
            "without role",
        ),
        Example(
            "the reward model is plain text",
            (tables(Column(name="reward_model", kind="string")), DEMANDS),
            "reward_model is string",
        ),
        Example(
            "everything was stored as text",
            (
                tables(Column(name="prompt", kind="string"), Column(name="reward_model", kind="string")),
                DEMANDS,
            ),
            "prompt is string, not a list of messages, reward_model is string",
        ),
        Example(
            "extra_info is plain text",
            (tables(Column(name="extra_info", kind="string")), DEMANDS),
            "extra_info is string",
        ),
    ]


@check("DATA105", phase="first batch", examples=_examples)
def data_column_wrong_kind(
    tables: DataTables, demands: DataDemands, configuration: Configuration | Unknown
) -> Iterator[Finding]:
    """A column of the data has another type than verl expects.

    ## Why it matters

    A prompt is a list of messages, each with `role` and `content`. If it is plain text, the chat template
    produces nonsense or fails, and verl then drops the row as if it were too long: `Train dataloader is
    empty`. A `reward_model` or `extra_info` that was stored as JSON text ends in `string indices must be
    integers` or `'str' object has no attribute 'get'`.

    ## How to fix

    When you generate the data, store Python lists and dictionaries instead of text: `[{"role": "user",
    "content": question}]`.
    """
    owner = demands.truth.partition(".")[0]
    for table, phase in used(tables, configuration):
        if table.file.kind not in demands.kinds:
            continue
        empty = dict(table.nulls).get(demands.prompt, 0)
        if empty and not demands.filters and table.file.role != "val":
            reached = bool(table.rows) and (empty == table.rows or (table.rows or 0) <= demands.batch)
            yield Finding(
                f"{table.file.path}: {demands.prompt} is null in {counted(empty, 'row')}",
                Evidence(f"{empty} of {table.rows} rows", "a list of messages in each", demands.read_from),
                location=location(table.file),
                remedy=(
                    "remove these rows when you generate the data, or set data.filter_overlong_prompts=True"
                ),
                subject=Subject("column", demands.prompt, table.file.path),
                severity="error" if reached else "warning",
            )
        wrong = {
            name: problem
            for name, wanted in ((demands.prompt, _MESSAGES), (owner, "struct"), ("extra_info", "struct"))
            if name and (problem := _wrong(table.kind(name), wanted))
        }
        if wrong:
            problem = ", ".join(f"{name} is {what}" for name, what in wrong.items())
            yield Finding(
                f"{table.file.path}: {problem}",
                Evidence(
                    "; ".join(f"{name}: {table.kind(name)[:100]}" for name in wrong),
                    f"{demands.prompt}: {_MESSAGES}, dictionaries in the others",
                    demands.read_from,
                ),
                location=location(table.file),
                remedy="store lists and dictionaries instead of text when you generate the data",
                subject=Subject("column", ",".join(wrong), table.file.path),
                phase=phase,
            )


def _wrong(kind: str, wanted: str) -> str:
    """What is wrong with a type; "" if it is usable or not specific, or if the column does not exist."""
    if not kind or kind in _ANY:
        return ""
    if wanted != _MESSAGES:
        return "" if kind.startswith("struct<") else kind[:60]
    if not kind.startswith("list<struct<"):
        return f"{kind[:60]}, not a list of messages"
    lacking = [part for part in ("role", "content") if f"{part}:" not in kind]
    return f"a list of messages without {' and '.join(lacking)}" if lacking else ""
