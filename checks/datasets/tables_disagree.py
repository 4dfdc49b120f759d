"""DATA113: the data files of one list have a column in common whose types differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from verl_doctor.checks.datasets._data import DEMANDS, TABLE, TRAIN, location
from verl_doctor.checks.datasets._kinds import difference
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_files import Role
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check

_PLAIN = frozenset({"Value", "Sequence", "List", "LargeList"})  # features with the types of the file itself
_KEYS: Mapping[Role, str] = {"train": "data.train_files", "val": "data.val_files"}
_NULL = re.compile(r"(?:list<)*null>*")
_PATTERN = frozenset("*?[")
_ALIGNS = replace(DEMANDS, aligns=True)
_LISTED = configured("data.train_files=[/data/train.parquet,/data/other.parquet]")


def _two(
    kind: str, *, name: str = "extra_info", role: Role = "train", rows: int = 10, features: str = "Value"
) -> DataTables:
    """Two tables of a role, of which one has a column of this type."""
    other = replace(
        TABLE,
        file=replace(TRAIN, path="/data/other.parquet", role=role, named_by=_KEYS.get(role, "")),
        columns=(*(column for column in TABLE.columns if column.name != name), Column(name=name, kind=kind)),
        rows=rows,
        features=(features,),
    )
    return DataTables((TABLE, other))


def _three(*kinds: str, first: str = "struct<index: int64>") -> DataTables:
    """Three tables whose columns have these types."""
    parts = (table for kind in (first, *kinds) for table in _two(kind).tables[1:])
    return DataTables(
        tuple(
            replace(table, file=replace(table.file, path=f"/data/{number}.parquet"))
            for number, table in enumerate(parts)
        )
    )


def _examples() -> list[Example]:
    return [
        Example("the same columns", (_two("struct<split: string, index: int64>"), _ALIGNS, *_LISTED)),
        Example(
            "another field in a dictionary", (_two("struct<index: int64, level: string>"), _ALIGNS, *_LISTED)
        ),
        Example("an empty field", (_two("struct<index: null, split: string>"), _ALIGNS, *_LISTED)),
        Example("a column that one of them lacks", (_two("string", name="ability"), _ALIGNS, *_LISTED)),
        Example("a table without rows", (_two("string", rows=0), _ALIGNS, *_LISTED)),
        Example("one to train, one to validate", (_two("string", role="val"), _ALIGNS, *_LISTED)),
        Example("features that convert values", (_two("string", features="Json"), _ALIGNS, *_LISTED)),
        Example("a type that may be the same", (_two("large_list<string>"), _ALIGNS, *_LISTED)),
        Example("a verl that reads files with pandas", (_two("string"), DEMANDS, *_LISTED)),
        Example(
            "a pattern, whose files are converted",
            (_two("string"), _ALIGNS, *configured("data.train_files=/data/*.parquet")),
        ),
        Example(
            "a number and a text",
            (_two("struct<index: string, split: string>"), _ALIGNS, *_LISTED),
            "extra_info.index is int64 in /data/train.parquet and string in /data/other.parquet",
        ),
        Example(
            "fields that the first table has neither of",
            (_three("struct<level: int64>", "struct<level: string>"), _ALIGNS, *_LISTED),
        ),
        Example(
            "an empty column, and two types",
            (_three("int64", "string", first="null"), _ALIGNS, *_LISTED),
            "extra_info is int64 in",
        ),
        Example("a dictionary and a text", (_two("string"), _ALIGNS, *_LISTED), "extra_info is struct<"),
        Example(
            "messages of other fields",
            (
                _two("list<struct<content: string, role: string, name: string>>", name="prompt"),
                _ALIGNS,
                *_LISTED,
            ),
            "prompt is list<struct<content: string, role: string>> in",
        ),
    ]


@check(
    "DATA113", phase="workers", requires=("DATA101", "DATA102", "DATA103"), examples=_examples, since="0.2"
)
def tables_disagree(
    tables: DataTables, demands: DataDemands, configuration: Configuration
) -> Iterator[Finding]:
    """The data files of one list have a column in common whose types differ.

    ## Why it matters

    verl joins the files of `data.train_files`, and those of `data.val_files`, with
    `datasets.concatenate_datasets`. It fills in a column that a file lacks, but refuses one that has another
    type, after Ray has started: `The features can't be aligned because the key ... has unexpected type`.
    Within a dictionary, this applies to each field. Within a list of dictionaries, all fields have to be the
    same.

    ## How to fix

    Generate both files with the same types, or leave out the column that differs if nothing reads it.
    """
    if not demands.aligns:
        return
    for role, key in _KEYS.items():
        if _PATTERN & set(_inside(configuration.get(key))):
            continue
        read = [table for table in tables.of(role) if table.rows != 0]  # datasets leaves out empty ones
        if not all(map(_is_certain, read)):
            continue
        for first, second, name, kind, other_kind in _disagreements(read):
            yield Finding(
                f"{name} is {kind[:60]} in {first.file.path} and {other_kind[:60]} in {second.file.path}",
                Evidence(
                    f"{name}: {other_kind[:200]}",
                    f"{name}: {kind[:200]}, as in {first.file.path}",
                    second.file.path,
                ),
                location=location(second.file),
                remedy=f"generate both files of {key} with the same types",
                subject=Subject("column", name, second.file.path),
                stops=(EVERY_JOB,),
            )
            break  # datasets reports one


def _inside(value: object) -> str:
    """The text of a setting without the brackets of a list."""
    return "".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value).strip("[]")


def _is_certain(table: Table) -> bool:
    return bool(table.rows) and table.file.kind == "parquet" and set(table.features) <= _PLAIN


def _disagreements(read: Sequence[Table]) -> Iterator[tuple[Table, Table, str, str, str]]:
    """Yield two tables, the name of what cannot be aligned, and its type in both.

    The first type of a column that is not null counts.
    """
    first: dict[str, tuple[Table, str]] = {}
    for table in read:
        for column in table.columns:
            earlier, kind = first.setdefault(column.name, (table, column.kind))
            if at := difference(kind, column.kind):
                yield earlier, table, column.name + at[0], *at[1:]
            if _NULL.fullmatch(kind):
                first[column.name] = table, column.kind
