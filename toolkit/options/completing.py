"""Shell completion of rule codes, families and repair numbers, read from the index."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from verl_doctor.toolkit.engine import kept_index
from verl_doctor.toolkit.engine.signature_files import titles_of


def codes_with_titles() -> Iterator[tuple[str, str]]:
    """Yield the codes of our rules, then of faults that only logs show, in order, each with a title."""
    yield from sorted((entry["code"], _title(entry["doc"] or "")) for entry in _parts()["checks"])
    yield from titles_of("LOG").items()


def _parts() -> Mapping[str, Any]:
    """Return the index of rules. If there is none yet, all rules are loaded once."""
    if (kept := kept_index.known("parts")) is None:
        from verl_doctor.toolkit.engine import part_index, registry  # noqa: PLC0415 - only this once

        kept = kept_index.section("parts", lambda: part_index.parts_document(registry.built_in()))
    found: Mapping[str, Any] = kept
    return found


def _title(documentation: str) -> str:
    return documentation.strip().partition("\n")[0].rstrip(".")


def rules_behind_commas(incomplete: str) -> list[CompletionItem]:
    """Complete the last of several codes or families that commas separate."""
    from verl_doctor.toolkit.rule import family_of  # noqa: PLC0415 - only when a code is completed

    given, comma, last = incomplete.rpartition(",")
    rules = [(code, title) for code, title in codes_with_titles() if not code.startswith("LOG")]
    families = {family_of(code): "" for code, _ in rules}
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
    """Leave the completion of files to the shell."""
    return [CompletionItem(incomplete, type="file")]


def complete_repairs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the number of a repair that can be undone."""
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
