"""Commands about what was changed: take it back, list it, see whether it is still there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from verl_doctor.toolkit import apply
from verl_doctor.toolkit.apply import Transaction
from verl_doctor.toolkit.cli_options import target_options
from verl_doctor.toolkit.fact_markers import MarkedLine, Markers
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.py_source import Unreadable, read
from verl_doctor.toolkit.session import open_session
from verl_doctor.toolkit.target import Options, UsageError, discover, journal_homes
from verl_doctor.toolkit.text import counted, harmless

_LOST = ("gone back", "changed by someone else", "partly in place")


@click.command()
@target_options
@click.argument("identifier", required=False, metavar="[ID]")
@click.option("--list", "list_them", is_flag=True, help="Show what happened when, and change nothing.")
@click.option("--all", "everything", is_flag=True, help="Take back everything, newest first.")
def undo(*, options: Options, identifier: str | None, list_them: bool, everything: bool) -> int:
    """Take the last repair back, byte for byte; or the one called ID.

    An edit that somebody made since is never lost: it is shown, and the repair stays.
    """
    if sum((bool(identifier), list_them, everything)) > 1:
        raise UsageError("give an ID, --list or --all, not two of them")
    homes = _homes(options)
    if list_them:
        print("\n".join(_listing(homes)) or "nothing was changed here")
        return 0
    try:
        done = (
            [t for home in homes for t in apply.undo(home, everything=True)]
            if everything
            else _undo_one(homes, identifier)
        )
    except apply.Refused as error:
        print(f"verl-doctor: {harmless(str(error), keep=chr(10) + chr(9))}", file=sys.stderr)
        return 1
    for transaction in done:
        print(
            harmless(
                f"undone {transaction.id}: {transaction.fix} for {transaction.code} of {transaction.time}"
            )
        )
        for change in transaction.changes:
            print(harmless(f"  {change.path}: {change.now}"))
    return 0


def _homes(options: Options) -> list[Path]:
    """The journals that concern this target and exist; the environment's first."""
    target = discover(options, Machine())
    return [home for home in dict.fromkeys(journal_homes(target)) if home.is_dir()]


def _undo_one(homes: list[Path], identifier: str | None) -> list[Transaction]:
    """Undo by name (an ID, or FOLDER/ID as a refusal prints them), or what was done last in any of the journals."""
    if identifier is not None and "/" in identifier:
        folder, _, identifier = identifier.rpartition("/")
        return apply.undo(Path(folder), identifier)
    if not homes:
        raise apply.Refused("there is nothing to undo: nothing was changed here")
    meant = [
        (transaction.time, home, transaction.id)
        for home in homes
        for transaction in apply.history(home)
        if _is_meant(transaction, identifier)
    ]
    if identifier is not None and len(meant) > 1:
        names = " or ".join(f"{home}/{number}" for _, home, number in meant)
        raise apply.Refused(f"{identifier} is in two journals; name one of them: verl-doctor undo {names}")
    home, number = max(meant)[1:] if meant else (homes[0], identifier)
    return apply.undo(home, number)


def _is_meant(transaction: Transaction, identifier: str | None) -> bool:
    """Whether it is the one called so ("7" and "0007" are the same), or without a name one that can be undone."""
    if identifier is None:
        return transaction.state not in {"undone", "failed"}
    return transaction.id.lstrip("0") == identifier.lstrip("0")


def _listing(homes: list[Path]) -> Iterator[str]:
    for home in homes:
        try:
            transactions = apply.history(home)
        except apply.Refused as error:
            yield harmless(str(error))
            continue
        if transactions:
            yield harmless(f"{home}")
        for transaction in transactions:
            yield harmless(
                f"  {transaction.id}  {transaction.time}  {transaction.state:<11}  {transaction.code}  {transaction.fix}"
            )
            yield from (
                harmless(f"        {change.description}: {change.now}") for change in transaction.changes
            )


@click.group()
def patches() -> None:
    """List the patched lines of a tree, and see whether they are still there."""


@patches.command("list")
@target_options
def list_patches(*, options: Options) -> int:
    """List the marked lines of the verl tree, ours and those of other people."""
    markers = _markers(options)
    for line in markers.lines:
        print(harmless(f"{line.path}:{line.line}  {line.marker}  {_text(line)}"))
    print(f"{counted(len(markers.lines), 'marked line')} in {harmless(markers.folder)}", file=sys.stderr)
    return 0


@patches.command()
@target_options
def verify(*, options: Options) -> int:
    """Say for each repair in the journal whether it is still in place. Exit code 1 when one is not."""
    lost = 0
    for home in _homes(options):
        try:
            transactions = apply.history(home)
        except apply.Refused as error:
            raise UsageError(str(error)) from None
        for transaction in transactions:
            if transaction.state == "applied":
                gone = [change for change in transaction.changes if change.now in _LOST]
                lost += bool(gone)
                state = "is in place" if not gone else f"{gone[0].now}: {gone[0].path}"
                print(harmless(f"{transaction.id}  {transaction.code}  {transaction.fix}  {state}"))
    return int(lost > 0)


def _text(line: MarkedLine) -> str:
    """The line as it stands there. It goes to the screen alone: facts do not hold it."""
    source = read(Path(line.path))
    lines = [] if isinstance(source, Unreadable) else source.decode("utf-8", "replace").splitlines()
    return "".join(lines[line.line - 1 : line.line]).strip()


def _markers(options: Options) -> Markers:
    markers = open_session(options).look().get(Markers)
    if isinstance(markers, Unknown):
        raise UsageError(f"{markers.reason}; name a tree with --verl DIR")
    return markers
