"""The commonest errors of a verl job, what each means, and what helps at once: made from the signatures of `verl-doctor logs`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit import toml
from verl_doctor.toolkit.signature import which


@dataclass(frozen=True)
class Entry:
    """A line of a log, the code and the words of the fault that it names, and the immediate remedy."""

    line: str
    code: str
    means: str
    do: str


def entries() -> tuple[Entry, ...]:
    """All of them, in the order of the data. Raises ValueError for a line that names no fault."""
    folder = Path(next(iter(importlib.import_module("verl_doctor.checks").__path__))) / "data"
    return tuple(map(_entry, toml.loads((folder / "quick_card.toml").read_text("utf-8"))["lines"]))


def _entry(line: str) -> Entry:
    found = which(line)
    if found is None or not found.is_named:
        raise ValueError(f"quick_card.toml: no signature names a fault for: {line}")
    return Entry(line, found.code, found.title, found.remedy)


def card() -> Iterator[str]:
    """The card as a Markdown table."""
    yield "| the log says | it means | do this | more |"
    yield "|---|---|---|---|"
    for one in entries():
        yield f"| `{_cell(one.line)}` | {_cell(one.means)} | {_cell(one.do)} | {one.code} |"


def listed() -> Iterator[str]:
    """The card as a Markdown list, for a terminal."""
    for one in entries():
        yield f"* `{one.line}`"
        yield f"  * {one.means} ({one.code})"
        yield f"  * do: {one.do}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
