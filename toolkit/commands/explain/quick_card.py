"""Common errors of a verl job, their meanings and immediate remedies, from `verl-doctor logs` signatures."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.console.markdown_text import with_code


@dataclass(frozen=True)
class Entry:
    """A log line, the code and title of the fault that it shows, and the immediate remedy."""

    line: str
    code: str
    means: str
    do: str


def entries() -> tuple[Entry, ...]:
    """Return all entries in the order of the data. Raises ValueError for a line without a known fault."""
    from verl_doctor.toolkit.system import toml  # noqa: PLC0415 - only the card is TOML

    folder = Path(next(iter(importlib.import_module("verl_doctor.checks").__path__))) / "data"
    return tuple(map(_entry, toml.loads((folder / "quick_card.toml").read_text("utf-8"))["lines"]))


def _entry(line: str) -> Entry:
    from verl_doctor.toolkit.logs.signature import which  # noqa: PLC0415 - a TAB and the other topics do without

    found = which(line)
    if found is None or not found.is_named:
        raise ValueError(f"quick_card.toml: no signature names a fault for: {line}")
    return Entry(line, found.code, found.title, found.remedy)


def card(pages: str) -> Iterator[str]:
    """Yield the lines of the card, a Markdown table that links each rule's page in the folder `pages`."""
    yield "| message | meaning | remedy | rule |"
    yield "|---|---|---|---|"
    for entry in entries():
        link = f"[{entry.code}]({pages}{entry.code}.md)"
        yield (
            f"| `{_cell(entry.line)}` | {_cell(with_code(entry.means))} | {_cell(with_code(entry.do))} | "
            f"{link} |"
        )


def listed() -> Iterator[str]:
    """Yield the lines of the card as a Markdown list, for a terminal."""
    for entry in entries():
        yield f"* `{entry.line}`"
        yield f"  * {with_code(entry.means)} ({entry.code})"
        yield f"  * do: {with_code(entry.do)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
