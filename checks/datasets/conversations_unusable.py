"""DATA108: the column of conversations that fine-tuning reads is missing, or holds something else."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import EVERY, location, tables
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.model.chat_template import ChatTemplate
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table
from verl_doctor.toolkit.collectors.model.rendered_prompts import RefusedTalks
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import (
    EVERY_JOB,
    Correction,
    Evidence,
    Example,
    Finding,
    Location,
    Phase,
    Subject,
    check,
)
from verl_doctor.toolkit.text import counted

_KEY = "data.messages_key"
_OWN = "data.custom_cls.path"
_VALIDATION = "data.val_files"
_CONVERSATIONS = "list<struct<content: string, role: string>>"
_CONTENT = re.compile(r"content: ([a-z0-9]+)")
_NO_TEXT = re.compile(r"u?int\d*|float\d*|double|halffloat|bool|decimal\d*|date\d*|timestamp|binary")
_TREE = {"data": {"messages_key": "messages", "train_batch_size": 256}}
_JOB = configured(tree=_TREE)
_TEMPLATE = ChatTemplate(folder="/models/gemma", found_in="/models/gemma/tokenizer_config.json")
(_TABLE,) = tables(Column(name="messages", kind=_CONVERSATIONS)).tables


def _irrelevant(configuration: Configuration) -> str | None:
    if configuration.get(_KEY) in (None, MISSING) or configuration.has("actor_rollout_ref"):
        return "this job does no fine-tuning on conversations"
    own = configuration.get(_OWN)
    return None if own in (None, MISSING, "") else f"{own} reads the data"


def _examples() -> list[Example]:
    return [
        Example("conversations", (*_JOB, tables(Column(name="messages", kind=_CONVERSATIONS)))),
        Example(
            "content in parts",
            (
                *_JOB,
                tables(
                    Column(
                        name="messages",
                        kind="list<struct<content: list<struct<text: string>>, role: string>>",
                    )
                ),
            ),
        ),
        Example(
            "another name",
            (*_JOB, tables(Column(name="conversations", kind=_CONVERSATIONS))),
            "has no column messages",
        ),
        Example(
            "text",
            (*_JOB, tables(Column(name="messages", kind="string"))),
            "messages is string, not a list of messages",
        ),
        Example(
            "another tool's keys",
            (*_JOB, tables(Column(name="messages", kind="list<struct<from: string, value: string>>"))),
            "a list of messages without role and content",
        ),
        Example(
            "one is null",
            (*_JOB, DataTables((replace(_TABLE, rows=2, nulls=(("messages", 1),)),))),
            "messages is null in 1 row",
        ),
        Example(
            "one is empty",
            (*_JOB, DataTables((replace(_TABLE, rows=2, empty=(("messages", 1),)),))),
            "messages has no message in 1 row",
        ),
        Example(
            "a template that refuses two messages of a user",
            (
                *_JOB,
                tables(Column(name="messages", kind=_CONVERSATIONS)),
                _TEMPLATE,
                RefusedTalks("roles must alternate", probed=True),
            ),
            "refuses two messages of a user, which verl renders first: roles must alternate",
        ),
        Example(
            "a template that refuses single messages",
            (
                *_JOB,
                tables(Column(name="messages", kind=_CONVERSATIONS)),
                _TEMPLATE,
                RefusedTalks("no question", probed=False),
            ),
            "refuses a message of every conversation alone, as verl renders it: no question",
        ),
        Example(
            "numbers",
            (*_JOB, tables(Column(name="messages", kind="list<struct<content: int64, role: string>>"))),
            "messages whose content is int64",
        ),
    ]


@check(
    "DATA108", applies=_irrelevant, requires=("CFG101", "CFG102", "CFG103"), examples=_examples, since="0.2"
)
def conversations_unusable(
    configuration: Configuration,
    tables: DataTables,
    template: ChatTemplate | Unknown,
    talks: RefusedTalks | Unknown,
) -> Iterator[Finding]:
    """The column of conversations that fine-tuning reads is missing, or holds something else.

    ## Why it matters

    The SFT trainer reads a single column, a list of messages with `role` and `content`, from the training and
    validation data. Without that column, it cannot create its data set. If the column holds anything else,
    the chat template cannot turn it into tokens. verl renders two empty messages of a user first, and then
    each message alone: a template that demands alternating roles, or a question in every conversation,
    refuses them.

    ## How to fix

    Set `data.messages_key` to the name of the column, or store lists of `{"role": ..., "content": ...}` when
    you generate the data.
    """
    key = configuration.get(_KEY)
    if isinstance(talks, RefusedTalks) and isinstance(template, ChatTemplate):
        what = (
            "two messages of a user, which verl renders first"
            if talks.probed
            else "a message of every conversation alone, as verl renders it"
        )
        yield Finding(
            f"the chat template in {template.found_in} refuses {what}: {talks.refused}",
            Evidence(talks.refused, "messages that the template accepts", template.found_in),
            location=None if template.text else Location(template.folder),
            remedy="change the template so that it accepts such messages, or set model.custom_chat_template",
            subject=Subject("file", template.folder, "template"),
            stops=(EVERY_JOB,),
            phase="workers" if talks.probed else "first batch",
        )
    for table in tables.of("train"):
        for what, rows in (("is null", table.nulls), ("has no message", table.empty)):
            if isinstance(key, str) and (count := dict(rows).get(key, 0)):
                yield _nothing(key, table, count, what, configuration)
    for table in tables.of("train", "val"):
        if not isinstance(key, str) or table.file.kind != "parquet":
            continue
        names = [column.name for column in table.columns]
        kind = table.kind(key)
        near = _meant(key, table, tables)
        problem = f"has no column {key}" if key not in names else _wrong(key, kind)
        phase: Phase = "first batch" if key in names else "workers"
        if problem:
            yield Finding(
                f"{table.file.path} {problem}",
                Evidence(found=kind[:100] or ", ".join(names[:12]), wanted=f"{key}: {_CONVERSATIONS}"),
                location=location(table.file),
                remedy=f"set {_KEY}={near}" if near else "store lists of messages with role and content",
                subject=Subject("column", key, table.file.path),
                stops=(EVERY_JOB,) if table.file.role == "train" or key not in names else (),
                severity=None if table.file.role == "train" or key not in names else "warning",
                phase=phase,
                **healed("DATA108", _correction(configuration, table, near)),
            )


def _meant(key: str, table: Table, tables: DataTables) -> str:
    """The column of conversations that is meant: one of a similar name, or the only one; "" if unclear.

    The training table needs it too. `prompt` of a table for RL has questions alone.
    """
    read = [table, *tables.of("train")]
    usable = [
        column.name
        for column in table.columns
        if column.name not in (key, "prompt")
        and all(
            "struct" in each.kind(column.name) and not _wrong("", each.kind(column.name)) for each in read
        )
    ]
    if key not in {column.name for column in table.columns} and (
        near := difflib.get_close_matches(key, usable, 1, 0.4)
    ):
        return near[0]
    return usable[0] if len(usable) == 1 else ""


def _correction(configuration: Configuration, table: Table, near: str) -> Correction | None:
    """The column that is meant; otherwise no validation, if only the validation table is unusable."""
    if near:
        return settings(configuration, {_KEY: near}, effect=f"verl reads the column {near}")
    if table.file.role != "val":
        return None
    # Without a table the trainer cannot validate between its steps.
    never = {} if configuration.get(EVERY) == -1 else {EVERY: -1}
    return settings(configuration, {_VALIDATION: None, **never}, effect="no validation runs")


def _nothing(key: str, table: Table, count: int, what: str, configuration: Configuration) -> Finding:
    """Rows without a conversation: an error if the job certainly comes to one of them."""
    certain = table.rows is not None and (count == table.rows or _takes_all(configuration, table.rows))
    return Finding(
        f"{table.file.path}: {key} {what} in {counted(count, 'row')}",
        Evidence(found=f"{count} of {table.rows} rows", wanted=f"{key}: {_CONVERSATIONS} in each"),
        location=location(table.file),
        remedy="remove these rows when you generate the data",
        subject=Subject("column", key, table.file.path),
        stops=(EVERY_JOB,) if certain else (),
        severity=None if certain else "warning",
        phase="first batch",
    )


def _takes_all(configuration: Configuration, rows: int) -> bool:
    """Return whether the job certainly comes to every row of its only table."""
    batch, steps = (
        configuration.number(key) or 0 for key in ("data.train_batch_size", "trainer.total_training_steps")
    )
    most = configuration.number("data.train_max_samples") or 0
    divides = batch > 0 and rows % batch == 0  # the loader leaves out the rest
    return most <= 0 and (rows <= batch or (divides and (steps <= 0 or steps * batch >= rows)))


def _wrong(key: str, kind: str) -> str:
    """What is wrong with the column's type; "" if it is usable, or not specific."""
    if not kind or kind in ("null", "list<null>"):
        return ""
    if not kind.startswith("list<struct<"):
        return f"has a column {key} that cannot be used: {key} is {kind[:60]}, not a list of messages"
    lacking = [part for part in ("role", "content") if f"{part}:" not in kind]
    if lacking:
        return f"has a column {key} that cannot be used: a list of messages without {' and '.join(lacking)}"
    match = _CONTENT.search(kind)
    if match and _NO_TEXT.fullmatch(match[1]):
        return f"has a column {key} that cannot be used: messages whose content is {match[1]}"
    return ""
