"""Shared by the rules about data files: examples, and the location of a finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from verl_doctor.checks.shared.corrections import reworded, settings
from verl_doctor.toolkit.collectors.configuration.configuration import (
    MISSING,
    UNDETERMINED,
    Configuration,
    OverrideWord,
)
from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_files import DataFile, DataFiles, Role, Trouble
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Location, Phase

TRAIN = DataFile(
    path="/data/train.parquet",
    role="train",
    named_by="data.train_files",
    kind="parquet",
    place="/home/me/run.sh",
    line=4,
)
COLUMNS = (
    Column(name="data_source", kind="string"),
    Column(name="prompt", kind="list<struct<content: string, role: string>>"),
    Column(name="reward_model", kind="struct<ground_truth: string, style: string>"),
    Column(name="extra_info", kind="struct<index: int64, split: string>"),
)
TABLE = Table(file=TRAIN, rows=7473, columns=COLUMNS, features=("Value",), sources=("openai/gsm8k",))
VALIDATION = replace(TRAIN, path="/data/validation.parquet", role="val", named_by="data.val_files")
_MOST = {"train": "data.train_max_samples", "val": "data.val_max_samples"}
BEFORE, EVERY = "trainer.val_before_train", "trainer.test_freq"
NEVER = (f"++{BEFORE}=False", f"++{EVERY}=-1")
DEMANDS = DataDemands(
    read_from="/env/verl/utils/dataset/rl_dataset.py",
    kinds=("parquet", "json", "jsonl"),
    prompt="prompt",
    source="data_source",
    truth="reward_model.ground_truth",
    batch=1024,
    batch_from="data.train_batch_size",
)


def files(trouble: Trouble = "", kind: str = "parquet", reason: str = "") -> DataFiles:
    """One training file with a fault."""
    return DataFiles((replace(TRAIN, trouble=trouble, kind=kind, path=f"/data/train.{kind}", reason=reason),))


def tables(*columns: Column, rows: int = 7473, features: tuple[str, ...] = ()) -> DataTables:
    """One training table; these columns replace those of the same name."""
    changed = {column.name: column for column in (*COLUMNS, *columns)}
    kept = tuple(column for column in changed.values() if column.kind)
    return DataTables((replace(TABLE, columns=kept, rows=rows, features=features or TABLE.features),))


def location(file: DataFile) -> Location:
    """Where the file is named, otherwise the file itself."""
    return Location(file.place, file.line or None) if file.place else Location(file.path)


def readable(tables: DataTables, demands: DataDemands) -> Iterator[Table]:
    """Yield the tables of formats that this verl reads; for the others, one finding is enough."""
    return (table for table in tables.of("train", "val", "named") if table.file.kind in demands.kinds)


def first_validation(configuration: Configuration | Unknown) -> Phase | Literal["never"] | None:
    """When the job first validates: before training (verl's default) or after a step; None if unknown."""
    if isinstance(configuration, Unknown):
        return None
    before = configuration.get(BEFORE)
    if before is not UNDETERMINED and (before is MISSING or before):
        return "first batch"
    every = configuration.number(EVERY)
    if every is not None and every > 0:
        return "first validation"
    return None if before is UNDETERMINED or every is None else "never"


def used(tables: DataTables, configuration: Configuration | Unknown) -> Iterator[tuple[Table, Phase | None]]:
    """Yield the tables whose rows the job certainly generates responses for.

    With each comes the phase of a fault in its rows; None stands for the rule's phase.
    """
    yield from ((table, None) for table in tables.of("train", "named"))
    when = first_validation(configuration)
    if when is not None and when != "never":
        yield from ((table, when) for table in tables.of("val"))


def takes_part(tables: DataTables, configuration: Configuration | Unknown, role: Role) -> bool:
    """Return whether the job may leave out rows: it takes only so many samples, and which is not read."""
    if isinstance(configuration, Unknown) or role not in _MOST:
        return False
    most = configuration.get(_MOST[role])
    if most is UNDETERMINED:
        return True
    if most is MISSING or not isinstance(most, (int, float)) or most <= 0:
        return False
    rows = tables.rows_of(role)
    return rows is None or most < rows


def instead_of_validation(
    file: DataFile, trained: str, configuration: Configuration | Unknown
) -> Correction | None:
    """The training table in place of a validation table that verl only opens: no validation runs."""
    if isinstance(configuration, Unknown) or file.role != "val" or not trained:
        return None
    word = configuration.override_of(file.named_by)
    at = "" if word is None else written(word, file)
    if (word is not None and not at) or first_validation(configuration) != "never":
        return None
    effect = f"no validation runs; {trained} replaces the file"
    if word is None:  # verl's default
        return settings(configuration, {file.named_by: trained}, effect=effect)
    return reworded(word, word.text.replace(at, trained), effect=effect)


def written(word: OverrideWord, file: DataFile) -> str:
    """The file's path as the word has it: absolute, or relative as its only value; otherwise ""."""
    if file.path in word.text:
        return file.path
    return word.value if isinstance(word.value, str) and file.path.endswith(f"/{word.value}") else ""
