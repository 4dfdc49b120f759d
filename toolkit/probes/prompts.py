"""Measures the longest prompt of data files, in bytes.

Runs under the target's interpreter, with its pyarrow; it prints none of their text.

It is passed as text, so it needs the standard library and pyarrow only. Called with a token, the name of the
column of prompts, and the paths of parquet files.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MOST_ROWS = 200_000


def size(prompt: Any) -> int | None:
    """Return the bytes of a prompt's texts, with an allowance for each message; None if not all text."""
    if isinstance(prompt, str):
        return len(prompt.encode("utf-8", "replace"))
    if not isinstance(prompt, list):
        return None
    total = 0
    for message in prompt:
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            return None
        total += len(content.encode("utf-8", "replace")) + len(str(message.get("role")))
    return total


def messages(prompt: Any) -> int:
    """Return how many messages a prompt has."""
    return len(prompt) if isinstance(prompt, list) else 1


def longest(path: str, column: str) -> dict[str, int] | None:
    """Return the maximum bytes and messages of the prompts; None if one is not all text, or too many."""
    import pyarrow.parquet  # noqa: PLC0415

    file = pyarrow.parquet.ParquetFile(path)
    if column not in file.schema_arrow.names or file.metadata.num_rows > MOST_ROWS:
        return None
    found = {"bytes": 0, "messages": 0}
    for batch in file.iter_batches(batch_size=2048, columns=[column]):
        for prompt in batch.column(0).to_pylist():
            bytes_ = size(prompt)
            if bytes_ is None:
                return None
            found = {
                "bytes": max(found["bytes"], bytes_),
                "messages": max(found["messages"], messages(prompt)),
            }
    return found


def longest_or_none(path: str, column: str) -> dict[str, int] | None:
    """Like `longest`; None for a file that cannot be read."""
    try:
        return longest(path, column)
    except Exception:  # noqa: BLE001 - an unreadable file gives no answer
        return None


if __name__ == "__main__":
    token, prompt_column = sys.argv[1:3]
    print(f"\n{token}{json.dumps([longest_or_none(path, prompt_column) for path in sys.argv[3:]])}")
