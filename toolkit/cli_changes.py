"""The command about what was changed: list it, take it back."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import click

from verl_doctor.toolkit import apply
from verl_doctor.toolkit.apply import Transaction
from verl_doctor.toolkit.cli_options import target_options
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.recorded import History, Recorded, history
from verl_doctor.toolkit.streams import give_up_stdout
from verl_doctor.toolkit.target import Options, UsageError, discover
from verl_doctor.toolkit.text import harmless


@click.command()
@target_options
@click.argument("identifier", required=False, metavar="[ID]")
@click.option("--list", "list_them", is_flag=True, help="Show what happened when, and change nothing.")
@click.option("--all", "everything", is_flag=True, help="Take back all repairs of this target, newest first.")
def undo(*, options: Options, identifier: str | None, list_them: bool, everything: bool) -> int:
    """Take the last repair back, byte for byte; or repair ID.

    An edit that somebody made since is never lost: it is shown, and the repair stays.
    """
    if sum((identifier is not None, list_them, everything)) > 1:
        raise UsageError("give an ID, --list or --all, not two of them")
    if identifier == "":
        raise UsageError("the ID is empty: is a variable not set?")
    if identifier is not None and "/" in identifier:
        folder, _, number = identifier.rpartition("/")
        return _undone([_Name(Path(folder or "/"), number)])
    found = _history(options)
    if list_them:
        return _list(found)
    if found.damaged:
        _complain("; ".join(found.damaged))
        return 1
    names = _meant(found, identifier, everything=everything)
    if not names:
        what = "everything here was undone already" if found.here else "nothing was changed here"
        _complain(f"there is nothing to undo: {what}{_hint(found)}")
        return 0 if everything else 1
    return _undone(names)


def _history(options: Options) -> History:
    machine = Machine()
    return history(discover(options, machine), machine)


@dataclass(frozen=True)
class _Name:
    """A transaction of a journal."""

    home: Path
    number: str


def _meant(found: History, identifier: str | None, *, everything: bool) -> list[_Name]:
    """The transactions to take back, in order. Raises UsageError when none or more than one is called so."""
    if identifier is not None:
        called = [r for r in found.here if r.transaction.id.lstrip("0") == identifier.lstrip("0")]
        if len(called) > 1:
            names = " or ".join(shlex.quote(recorded.name) for recorded in called)
            raise UsageError(f"{identifier} is in two journals; name one of them: verl-doctor undo {names}")
        if not called:
            raise UsageError(
                f"there is no repair {identifier} here; verl-doctor undo --list names those there are"
            )
    else:
        called = [r for r in reversed(found.here) if r.transaction.state not in {"undone", "failed"}]
        if everything:
            called = [r for r in called if any(change.paths for change in r.transaction.changes)]
        else:
            called = called[:1]
    return [_Name(recorded.home, recorded.transaction.id) for recorded in called]


def _hint(found: History) -> str:
    """How to name the last repair of another target."""
    others = [
        recorded
        for recorded in found.elsewhere
        if recorded.transaction.state not in {"undone", "failed"}
        and any(change.paths for change in recorded.transaction.changes)
    ]
    if not others:
        return ""
    last = others[-1]
    paths = ", ".join(change.path for change in last.transaction.changes)
    return f"; the last repair of another target changed {paths}: verl-doctor undo {shlex.quote(last.name)}"


def _undone(names: Iterable[_Name]) -> int:
    """Take them back one after the other, then say so. One that is refused does not keep the others."""
    done: list[Transaction] = []
    refused: list[str] = []
    for name in names:
        try:
            done += apply.undo(name.home, name.number)
        except apply.Refused as error:  # noqa: PERF203 - each by itself
            refused.append(str(error))
    for sentence in refused:
        _complain(sentence)
    try:
        for transaction in done:
            about = f"{transaction.fix} for {transaction.code} of {transaction.time}"
            print(harmless(f"undone {transaction.id}: {about}"))
            for change in transaction.changes:
                print(harmless(f"  {change.path}: {change.now}"))
        sys.stdout.flush()
    except OSError as error:
        give_up_stdout()
        _complain(f"undone {', '.join(t.id for t in done)}; stdout cannot be written: {error.strerror}")
    return int(bool(refused))


def _complain(sentence: str) -> None:
    print(f"verl-doctor: {harmless(sentence, keep=chr(10) + chr(9))}", file=sys.stderr)


def _list(found: History) -> int:
    """Say what happened when. Exit code 3 when a journal cannot be read."""
    lines = [*_listing(found.here), *_listing(found.elsewhere, of="other targets, ")]
    if lines or not found.damaged:
        print("\n".join(lines) or "nothing was changed here")
    for sentence in found.damaged:
        _complain(sentence)
    return 3 if found.damaged else 0


def _listing(changes: Iterable[Recorded], of: str = "") -> Iterator[str]:
    for home, group in groupby(sorted(changes, key=lambda r: (str(r.home), r.order)), key=lambda r: r.home):
        yield harmless(f"{of}{home}")
        for transaction in (recorded.transaction for recorded in group):
            about = f"{transaction.state:<11}  {transaction.code}  {transaction.fix}"
            yield harmless(f"  {transaction.id}  {transaction.time}  {about}")
            yield from (
                harmless(f"        {change.description}: {change.now}") for change in transaction.changes
            )
