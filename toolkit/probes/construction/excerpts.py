"""Copies the first rows of data files to the private folder.

A batch is enough of a data set of many gigabytes.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_MOST_BYTES = 64 * 1024 * 1024
_AT_LEAST = 8  # rows of each file


@dataclass(frozen=True)
class Excerpt:
    """`rows` of the files, and whether these are all rows."""

    paths: list[str]
    rows: int
    whole: bool


def excerpt(paths: Iterable[str], wanted: int, folder: str) -> Excerpt:
    """Copy the first rows of Parquet and JSON-lines files; other and unreadable files stay in place."""
    found: list[str] = []
    rows, whole = 0, True
    for number, path in enumerate(paths):
        real = os.path.expanduser(path)  # noqa: PTH111
        place = Path(folder, str(number), os.path.basename(real))  # noqa: PTH119
        limit = max(wanted - rows, _AT_LEAST)
        copied = _copy(real, place, limit) if os.path.isfile(real) else None
        if copied is None:
            found.append(path)
            continue
        found.append(str(place))
        rows += copied[0]
        whole = whole and copied[1]
    return Excerpt(found, rows, whole)


def _copy(source: str, place: Path, limit: int) -> tuple[int, bool] | None:
    """Return how many rows were copied, and whether these are all; None if verl must read the file itself."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.endswith(".parquet") or _begins_as_parquet(source):
        return _parquet(source, place, limit)
    return _lines(source, place, limit) if source.endswith(".jsonl") else None


def _begins_as_parquet(source: str) -> bool:
    with open(source, "rb") as file:  # noqa: PTH123
        return file.read(4) == b"PAR1"


def _parquet(source: str, place: Path, limit: int) -> tuple[int, bool] | None:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(source)
        batches, rows, size = [], 0, 0
        for batch in file.iter_batches(batch_size=min(limit, 1024)):
            piece = batch.slice(0, limit - rows)
            batches.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
            if rows >= limit or size > _MOST_BYTES:
                break
        table = pa.Table.from_batches(batches, schema=file.schema_arrow)
        parquet.write_table(table, str(place))
    except (OSError, pa.ArrowException):
        return None  # verl reports the error itself
    return rows, rows == file.metadata.num_rows


def _lines(source: str, place: Path, limit: int) -> tuple[int, bool] | None:
    with open(source, "rb") as file:  # noqa: PTH123
        lines = list(itertools.islice(file, limit))
        more = bool(file.readline())
    place.write_bytes(b"".join(lines))
    return len(lines), not more
