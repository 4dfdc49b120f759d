"""Describes data files: columns, number of rows, types of values.

Runs under the target's interpreter, with its pyarrow.

It is passed as text, so it needs the standard library and pyarrow only. Of the values in a row it reports the
names of data sources and nothing else. Called with a token, the name of the column of data sources, and the
kind and the path of each file.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

FIRST_ROWS = 64
MOST_ROWS = 100_000
MOST_SOURCES = 100
AGENT = "agent_name"
MESSAGES = ("prompt", "messages")
LARGEST_JSON = 512 * 1024 * 1024  # bytes of one JSON document
MOST_MEMORY = 4 * 1024**3  # bytes of this process: a small file may unpack to any size


def kind_of_arrow(kind: Any) -> str:
    """Format an Arrow type, in the notation also used for JSON values: list<struct<role: string>>."""
    import pyarrow.types as t  # noqa: PLC0415

    if t.is_struct(kind):
        inner = [kind.field(index) for index in range(kind.num_fields)]
        return f"struct<{', '.join(f'{field.name}: {kind_of_arrow(field.type)}' for field in inner)}>"
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return f"list<{kind_of_arrow(kind.value_type)}>"
    if t.is_dictionary(kind):
        return kind_of_arrow(kind.value_type)
    return "string" if t.is_string(kind) or t.is_large_string(kind) else str(kind)


def kind_of_json(value: Any) -> str:
    """Format the type of a JSON value in the same notation."""
    if isinstance(value, dict):
        return f"struct<{', '.join(f'{key}: {kind_of_json(inner)}' for key, inner in value.items())}>"
    if isinstance(value, list):
        return f"list<{kind_of_json(value[0]) if value else 'null'}>"
    return {str: "string", bool: "bool", int: "int64", float: "double"}.get(type(value), "null")


def feature_types(value: Any) -> Iterator[str]:
    """Yield every `_type` among the features that the package `datasets` has written into the footer."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict) and isinstance(value.get("_type"), str):
        yield value["_type"]
    for part in inner:
        yield from feature_types(part)


def describe_parquet(path: str, source: str) -> dict[str, Any]:
    """Read the footer, and the column of data sources in the first rows."""
    import pyarrow.parquet  # noqa: PLC0415

    file = pyarrow.parquet.ParquetFile(path)
    schema = file.schema_arrow
    try:
        features = set(feature_types(json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))))
    except (ValueError, RecursionError):
        features = set()
    filled, doubtful = filled_columns(file.metadata)
    lacking = {name: without_messages(file, name) for name in MESSAGES if name in doubtful}
    return {
        "rows": file.metadata.num_rows,
        "columns": [[field.name, kind_of_arrow(field.type)] for field in schema],
        "features": sorted(features),
        "sources": distinct(file, source),
        "agents": distinct(file, AGENT),
        "filled": filled,
        "nulls": [[name, rows[0]] for name, rows in lacking.items() if rows[0]],
        "empty": [[name, rows[1]] for name, rows in lacking.items() if rows[1]],
    }


def distinct(file: Any, name: str) -> list[str]:
    """Return the texts of a column in the first rows."""
    schema, found, seen = file.schema_arrow, dict[str, None](), 0
    if name in schema.names and kind_of_arrow(schema.field(name).type) == "string":
        for batch in file.iter_batches(batch_size=8192, columns=[name]):
            found.update(dict.fromkeys(batch.column(0).unique().to_pylist()))
            seen += batch.num_rows
            if seen >= MOST_ROWS or len(found) > MOST_SOURCES:
                break
    return [text for text in found if text is not None][:MOST_SOURCES]


def filled_columns(metadata: Any) -> tuple[list[str], set[str]]:
    """Return the columns that have a value in any row, and those that may have none in some.

    The source is the statistics in the footer.
    """
    filled: dict[str, None] = {}
    doubtful = set()
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            part = metadata.row_group(group).column(place)
            name, known = part.path_in_schema.partition(".")[0], part.statistics
            empty = known.null_count if known is not None and known.has_null_count else None
            if empty is None or empty:
                doubtful.add(name)
            if empty is not None and known.num_values:
                filled[name] = None
    return list(filled), doubtful


def without_messages(file: Any, name: str) -> tuple[int, int]:
    """Return how many of the first rows have no value in a column, and how many an empty list."""
    import pyarrow.compute  # noqa: PLC0415

    nulls = empty = seen = 0
    is_list = kind_of_arrow(file.schema_arrow.field(name).type).startswith("list<")
    for batch in file.iter_batches(batch_size=8192, columns=[name]):
        column = batch.column(0)
        nulls, seen = nulls + column.null_count, seen + batch.num_rows
        if is_list:
            empty += pyarrow.compute.list_value_length(column).to_pylist().count(0)
        if seen >= MOST_ROWS:
            break
    return nulls, empty


def describe_json(path: str, source: str) -> dict[str, Any]:
    """Read the first lines of JSON Lines, or a whole list of objects."""
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        start = file.read(1)
        file.seek(0)
        if start == "[":
            every = json.loads(file.read(LARGEST_JSON))
            rows, first = len(every), every[:FIRST_ROWS]
        else:
            lines = (line for line in file if line.strip())
            first = [json.loads(line) for line in islice(lines, FIRST_ROWS)]
            rows = len(first) + sum(1 for _ in islice(lines, MOST_ROWS))
    columns: dict[str, str] = {}
    for row in first:
        for key, value in row.items():
            if columns.get(key, "null") == "null":
                columns[key] = kind_of_json(value)
    return {
        "rows": rows if rows < MOST_ROWS else None,
        "columns": [[name, kind] for name, kind in columns.items()],
        "features": [],
        "sources": list(dict.fromkeys(row[source] for row in first if isinstance(row.get(source), str))),
    }


def describe(path: str, source: str, kind: str) -> dict[str, Any]:
    """Describe one file, or return why that fails."""
    reader = describe_json if kind in ("json", "jsonl") else describe_parquet
    try:
        return reader(path, source)
    except ImportError as error:
        return {"lacks": str(error.name or error)}
    except (MemoryError, RecursionError):  # a limit of this process, not a fault of the file
        raise
    except Exception as error:  # noqa: BLE001 - whatever a file holds, the next one is looked at
        return {"error": f"{type(error).__name__}: {error}".partition("\n")[0][:300]}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    token, source_column = sys.argv[1:3]
    files = zip(sys.argv[3::2], sys.argv[4::2])  # noqa: B905 - Python 3.9 has no `strict`
    print(f"\n{token}{json.dumps([describe(path, source_column, kind) for kind, path in files])}")
