"""Copies the first rows of a data file. Runs under the target's interpreter, with its pyarrow.

It is passed as text. Called with a token, the number of rows, and pairs of paths: from, to. It prints a list:
for each pair the number of rows written and the names of the columns, or why there are none.
"""

from __future__ import annotations

import json
import sys
from itertools import islice


def copy_parquet(source: str, target: str, rows: int) -> tuple[int, list[str]]:
    """Copy with the file's own schema, including other libraries' entries in its footer."""
    import pyarrow.parquet  # noqa: PLC0415

    file = pyarrow.parquet.ParquetFile(source)
    with pyarrow.parquet.ParquetWriter(target, file.schema_arrow) as writer:
        for batch in islice(file.iter_batches(batch_size=rows), 1):
            writer.write_batch(batch)
            return batch.num_rows, list(batch.schema.names)
    return 0, []


def copy_json(source: str, target: str, rows: int) -> tuple[int, list[str]]:
    """Copy the first lines, or the first elements of one list."""
    with open(source, encoding="utf-8") as file:  # noqa: PTH123
        first = next((mark for line in file if (mark := line.lstrip()[:1])), "")
        file.seek(0)
        if first == "[":
            taken = json.load(file)[:rows]
            text = json.dumps(taken)
        else:
            lines = list(islice((line for line in file if line.strip()), rows))
            taken = list(map(json.loads, lines))
            text = "".join(lines)
    with open(target, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)
    return len(taken), sorted({name for row in taken for name in row})


def copied(source: str, target: str, rows: int) -> tuple[int, list[str]] | str:
    """Copy one file, or return why not."""
    try:
        return (copy_parquet if source.endswith(".parquet") else copy_json)(source, target, rows)
    except Exception as error:  # noqa: BLE001 - whatever a library raises for a damaged file
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Copy the given files."""
    token, rows, *paths = sys.argv[1:]
    answers = [
        copied(source, target, int(rows)) for source, target in zip(paths[::2], paths[1::2], strict=True)
    ]
    print(token + json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
