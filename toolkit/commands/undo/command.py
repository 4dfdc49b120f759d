"""The command `undo`: list changes, and revert them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import click

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import give_up_stdout, nothing_on_stdout
from verl_doctor.toolkit.engine.discovery import discover
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.options.completing import complete_repairs
from verl_doctor.toolkit.options.node_options import node_options
from verl_doctor.toolkit.options.shared import shared_option
from verl_doctor.toolkit.options.target_options import target_options
from verl_doctor.toolkit.repair.recorded import (
    History,
    Name,
    Recorded,
    history,
    moment,
    parts_of,
    undo_runs,
    undone_lines,
)
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.target import Options, UsageError
from verl_doctor.toolkit.text import harmless


@click.command(
    epilog="Exit codes: 0 undone, or nothing to undo; 1 something could not be undone; 2 wrong usage; "
    "3 a node did not respond, or a journal cannot be read."
)
@target_options
@node_options
@shared_option(
    "--ray-address",
    default="",
    metavar="HOST:PORT",
    help="With --cluster: the Ray cluster whose head (GCS) has this address.",
)
@click.argument("identifier", required=False, metavar="[ID]", shell_complete=complete_repairs)
@click.option("--list", "list_them", is_flag=True, help="List all repairs; change nothing.")
@click.option("--all", "everything", is_flag=True, help="Undo all repairs of this target, newest first.")
@click.option(
    "--keep-edits",
    is_flag=True,
    help="Keep what was edited after the repair; undo the lines of the repair that the edits do not touch.",
)
def undo(
    *,
    options: Options,
    nodes: RequestedNodes | None,
    ray_address: str,
    identifier: str | None,
    list_them: bool,
    everything: bool,
    keep_edits: bool,
) -> int:
    """Undo the last repair, or repair ID, byte for byte.

    Later edits are never lost: if a repaired file was edited, the edit is shown and the repair stays. With
    --keep-edits its lines are undone beside the edits, and it stays only if these touch them. With --cluster
    or --nodes the repairs of `fix` on other nodes are undone too, once in each environment.
    """
    if identifier and list_them:
        raise UsageError(
            "--list takes no argument; for the changes of another environment add --python PATH or --verl DIR"
        )
    if sum((identifier is not None, list_them, everything)) > 1:
        raise UsageError("choose one of ID, --list and --all")
    if identifier == "":
        raise UsageError("the ID is empty; is a variable unset?")
    if identifier is not None and "/" in identifier:
        folder, _, number = identifier.rpartition("/")
        return _undone(*_named(options, Path(folder or "/"), number), keep_edits=keep_edits)
    if nodes is not None:
        if identifier is not None or list_them or keep_edits:
            raise UsageError(
                "on other nodes only the last repair, or all with --all, can be undone: remove ID, "
                "--list and --keep-edits"
            )
        return _undone_on(nodes, replace(options, ray_address=ray_address), everything=everything)
    if ray_address:
        raise UsageError("--ray-address requires --cluster")
    found = _history(options)
    if list_them:
        return _list(found)
    if found.damaged:
        _complain("; ".join(found.damaged))
        return ExitCode.COULD_NOT_CHECK
    runs = _meant(found, identifier, everything=everything)
    if not runs:
        what = "everything here has already been undone" if found.here else "nothing was changed here"
        _complain(f"nothing to undo: {what}{_hint(found)}")
        return ExitCode.OK
    return _undone(runs, _trees(options), keep_edits=keep_edits)


def _named(options: Options, home: Path, number: str) -> tuple[list[Sequence[Name]], list[Path]]:
    """The run of a transaction that is named in full. Raises UsageError when its journals cannot be read."""
    try:
        return [parts_of(home, number)], _trees(options)
    except Refused as error:
        raise UsageError(str(error)) from None


def _trees(options: Options) -> list[Path]:
    """The trees that the user names, which a journal may contain."""
    verl = discover(options, Machine()).verl if options.verl is not None else None
    return [verl] if verl is not None else []


def _history(options: Options) -> History:
    machine = Machine()
    return history(discover(options, machine), machine)


def _meant(found: History, identifier: str | None, *, everything: bool) -> list[Sequence[Name]]:
    """The runs to undo, in order, each with its parts. Raises UsageError if none or several match.

    A number is looked up among the repairs of the target first, then among all others that are listed.
    """
    called: Sequence[Recorded] = found.standing(everything=everything)
    if identifier is not None:
        called = _called(found.here, identifier) or _called(found.elsewhere, identifier)
        if len(called) > 1:
            names = " or ".join(shlex.quote(recorded.name) for recorded in called)
            raise UsageError(f"{identifier} is in two journals; name one of them: verl-doctor undo {names}")
        if not called:
            raise UsageError(f"no repair {identifier} here; run verl-doctor undo --list")
    return [recorded.parts for recorded in called]


def _called(changes: Iterable[Recorded], identifier: str) -> list[Recorded]:
    """Those with this number.

    First come those that are listed under it, then those that have a part of that number.
    """
    if not identifier.isdecimal():
        return []
    number = int(identifier[:18])
    parts = [recorded for recorded in changes if recorded.is_called(number)]
    return [recorded for recorded in parts if int(recorded.transaction.id) == number] or parts


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


def _undone(runs: Iterable[Sequence[Name]], named: Sequence[Path], *, keep_edits: bool = False) -> int:
    """Undo them one by one, then report it."""
    done, refused = undo_runs(runs, named, keep_edits=keep_edits)
    for sentence in refused:
        _complain(sentence)
    try:
        for transaction in done:
            for line in undone_lines(transaction):
                print(harmless(line))
        sys.stdout.flush()
    except OSError as error:
        give_up_stdout()
        _complain(f"undone {', '.join(t.id for t in done)}; stdout cannot be written: {error.strerror}")
    return ExitCode.FAILED if refused else ExitCode.OK


def _undone_on(nodes: RequestedNodes, options: Options, *, everything: bool) -> int:
    """Undo in the environment here, then in those of the other nodes."""
    from verl_doctor.toolkit.cluster import undo as cluster_undo  # noqa: PLC0415 - few repairs are of many nodes

    with nothing_on_stdout(), Progress() as progress:
        others = cluster_undo.others(nodes, options, progress.show)
    code = _undone(_meant(_history(options), None, everything=everything), _trees(options))
    with nothing_on_stdout(), Progress() as progress:
        outcomes = cluster_undo.undo_runs(others, everything=everything, watch=progress.show)
    for line in outcomes.lines:
        print(harmless(line))
    for sentence in (*outcomes.refused, *outcomes.unknown):
        _complain(sentence)
    return max(code, int(bool(outcomes.refused))) or (
        ExitCode.COULD_NOT_CHECK if outcomes.unknown else ExitCode.OK
    )


def _complain(sentence: str) -> None:
    print(f"verl-doctor: {harmless(sentence, keep=chr(10) + chr(9))}", file=sys.stderr)


def _list(found: History) -> int:
    """Print what happened when. Exit code 3 if a journal cannot be read."""
    lines = [*_listing(found.here), *_listing(found.elsewhere, of="other targets, ")]
    if lines or not found.damaged:
        print("\n".join(lines) or "nothing was changed here")
    for sentence in found.damaged:
        _complain(sentence)
    return ExitCode.COULD_NOT_CHECK if found.damaged else ExitCode.OK


def _listing(changes: Iterable[Recorded], of: str = "") -> Iterator[str]:
    for home, group in groupby(sorted(changes, key=lambda r: (str(r.home), r.order)), key=lambda r: r.home):
        yield harmless(f"{of}{home}")
        for transaction in (recorded.transaction for recorded in group):
            about = f"{transaction.state:<11}  {transaction.code}  {transaction.fix}"
            yield harmless(f"  {transaction.id}  {moment(transaction.time)}  {about}")
            for change in transaction.changes:
                gone = change.now == "restored" and transaction.state == "applied"
                now = (
                    "no longer in place"
                    if gone
                    else "still in place"
                    if change.now == "in place"
                    else change.now
                )
                yield harmless(f"        {change.description}: {now}")
