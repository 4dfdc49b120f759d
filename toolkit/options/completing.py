"""What shells complete: rule codes and families, and the numbers of repairs. Nothing here loads a rule."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click
from click.shell_completion import CompletionItem

_DECLARED = re.compile(r'^@check\(\s*"([A-Z]{2,5}\d{3})"', re.MULTILINE)
_TITLE = re.compile(r'\A"""(?:[A-Z]{2,5}\d{3}: )?(.*?)(?:"""|$)', re.MULTILINE)
_SIGNATURE = re.compile(r'^code = "(LOG\d{3})"(?:\n(?!\[).*)*?\ntitle = "(.*)"', re.MULTILINE)


def codes_with_titles() -> Iterator[tuple[str, str]]:
    """Yield the codes of our rules, then those that only logs show, in order, each with a title.

    They are read from the sources as text: loading all rules takes longer than a person waits for a completion.
    """
    tops = [Path(path) for path in importlib.import_module("verl_doctor.checks").__path__]
    yield from sorted(_rules(tops))
    yield from sorted(_signatures(tops).items())


def _rules(tops: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for file in (file for top in tops for file in top.rglob("*.py")):
        text = file.read_text("utf-8", "replace")
        title = _TITLE.match(text)
        yield from ((code, title[1] if title else "") for code in _DECLARED.findall(text))


def _signatures(tops: Iterable[Path]) -> Mapping[str, str]:
    texts = (file.read_text("utf-8") for top in tops for file in (top / "data" / "signatures").glob("*.toml"))
    found: dict[str, str] = {}
    for code, title in (pair for text in texts for pair in _SIGNATURE.findall(text)):
        found.setdefault(code, title)
    return found


def rules_behind_commas(incomplete: str) -> list[CompletionItem]:
    """Complete the last of several codes or families that commas separate."""
    given, comma, last = incomplete.rpartition(",")
    rules = [(code, title) for code, title in codes_with_titles() if not code.startswith("LOG")]
    families = {code.rstrip("0123456789"): "" for code, _ in rules}
    begun = [
        (word, title)
        for word, title in (*families.items(), *rules)
        if word.startswith(last.upper()) and word not in given.upper().split(",")
    ]
    return [
        CompletionItem(f"{given}{comma}{word}", help=title or "all rules of this family")
        for word, title in begun
    ]


def complete_files(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave the completion to the shell, which knows files best."""
    return [CompletionItem(incomplete, type="file")]


def complete_folders(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave the completion of folders to the shell."""
    return [CompletionItem(incomplete, type="dir")]


def complete_repairs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the number of a repair that can be taken back."""
    from verl_doctor.toolkit.engine.discovery import discover  # noqa: PLC0415 - only when a number is completed
    from verl_doctor.toolkit.machine import Machine  # noqa: PLC0415
    from verl_doctor.toolkit.repair.recorded import history  # noqa: PLC0415
    from verl_doctor.toolkit.target import Options  # noqa: PLC0415

    machine = Machine()
    if os.sep in incomplete:
        return [CompletionItem(incomplete, type="file")]
    transactions = (recorded.transaction for recorded in history(discover(Options(), machine), machine).here)
    return [
        CompletionItem(transaction.id, help=f"{transaction.code} {transaction.fix} {transaction.time}")
        for transaction in transactions
        if transaction.state == "applied" and transaction.id.startswith(incomplete)
    ]
