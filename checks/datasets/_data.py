"""Shared by the rules about data files: examples, and the location of a finding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.toolkit.collectors.model.data_demands import DataDemands
from verl_doctor.toolkit.collectors.model.data_files import DataFile, DataFiles, Trouble
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table
from verl_doctor.toolkit.rule import Location

TRAIN = DataFile(
    "/data/train.parquet", "train", "data.train_files", "parquet", place="/home/me/run.sh", line=4
)
COLUMNS = (
    Column("data_source", "string"),
    Column("prompt", "list<struct<content: string, role: string>>"),
    Column("reward_model", "struct<ground_truth: string, style: string>"),
    Column("extra_info", "struct<index: int64, split: string>"),
)
TABLE = Table(TRAIN, 7473, COLUMNS, ("Value",), ("openai/gsm8k",))
DEMANDS = DataDemands(
    read_from="/env/verl/utils/dataset/rl_dataset.py", kinds=("parquet", "json", "jsonl"), prompt="prompt",
    source="data_source", truth="reward_model.ground_truth", batch=1024, batch_from="data.train_batch_size",
)  # fmt: skip


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
