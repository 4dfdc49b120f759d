"""Commands about the patched lines of a tree: list them, verify them, carry them to another cluster."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from verl_doctor.toolkit.changes import apply as engine
from verl_doctor.toolkit.changes import links
from verl_doctor.toolkit.changes.difference import unified
from verl_doctor.toolkit.changes.transactions import LOST
from verl_doctor.toolkit.collectors.installed.markers import MarkedLine, Markers, markers_in
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.engine.session import Session, open_session, version
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.marker import Marker, is_marker
from verl_doctor.toolkit.options.helpful_group import HelpfulGroup
from verl_doctor.toolkit.options.shared import Command
from verl_doctor.toolkit.options.target_options import target_options
from verl_doctor.toolkit.options.value_types import PATH, FileToWrite, force_option
from verl_doctor.toolkit.patchsets import patchset, repatch
from verl_doctor.toolkit.patchsets.expiry import Need, needs
from verl_doctor.toolkit.patchsets.line_patch import LinePatch
from verl_doctor.toolkit.patchsets.patch_state import missing
from verl_doctor.toolkit.patchsets.patched import PatchedFile, patched_files
from verl_doctor.toolkit.patchsets.patchset import AnyPatch
from verl_doctor.toolkit.repair.recorded import history
from verl_doctor.toolkit.sources.python.source import Unreadable, read
from verl_doctor.toolkit.target import CannotJudgeError, Options, UsageError, journal_home
from verl_doctor.toolkit.text import counted, harmless

_EXPIRED = "in place, expired: this vLLM no longer needs it"


@click.group(cls=HelpfulGroup)
def patches() -> None:
    """List, verify, export and apply the patches of a tree."""


def _marker_option(command: Command) -> Command:
    return click.option(
        "--marker",
        "words",
        multiple=True,
        metavar="WORD",
        help=(
            "Treat this word in a comment as a marker; may be repeated. Not needed for words on old lines "
            "that are kept as comments."
        ),
    )(command)


@patches.command("list")
@target_options
@_marker_option
def list_patches(*, options: Options, words: tuple[str, ...]) -> int:
    """List the marked lines of the tree, hand-made marks included.

    Reads the package's sources, and in a checkout also its scripts, YAML and TOML files.
    """
    found = _look(options, words)
    for line in found.markers.lines:
        print(harmless(f"{line.path}:{line.line}  {line.marker}  {_text(line)}"))
    where = f"{counted(len(found.markers.lines), 'marked line')} in {found.markers.folder}"
    print(harmless(where))
    _hint(found, words)
    return ExitCode.OK


@patches.command(epilog="Exit codes: 0 all are in place, 1 one is not, 2 FILE cannot be used.")
@target_options
@_marker_option
@click.argument("file", required=False, type=PATH, metavar="[FILE]")
def verify(*, options: Options, words: tuple[str, ...], file: Path | None) -> int:
    """Report whether each patch is still in place.

    FILE comes from patches export; it also works after a reinstall or on another machine. Without it, the
    patches in the tree and in this machine's journal are checked.
    """
    wanted = None if file is None else patchset.load(file)
    with nothing_on_stdout(), Progress() as progress:
        progress.show("reading the tree")
        found = _look(options, words, wanted or ())
        progress.show("checking the code without its patches")
        found_needs = needs(found.session, found.folder, found.files)
    if wanted is None:
        lost = _journalled(found.session)
        _standing(found, found_needs)
        if not found_needs:
            print(harmless(f"no patches in {found.folder}"))
        return ExitCode.FAILED if lost else ExitCode.OK
    present = {patch.identity: need for patch, need in found_needs.items()}
    lost = 0
    for patch in wanted:
        state = (
            _in_place(present[patch.identity])
            if patch.identity in present
            else missing(
                patch,
                found.top(patch),
                found_needs,
                f"verl-doctor patches apply {shlex.quote(str(file))} --apply",
            )
        )
        lost += patch.identity not in present
        print(harmless(f"{patch.marker}  {patch.place}  {state}"))
    print(harmless(f"{len(wanted) - lost} of {counted(len(wanted), 'patch', 'patches')} in place"))
    return ExitCode.FAILED if lost else ExitCode.OK


@patches.command()
@target_options
@_marker_option
@click.argument("file", type=FileToWrite(output.PATCHES), metavar="FILE")
@force_option
def export(*, options: Options, words: tuple[str, ...], file: Path) -> int:
    """Write the patches of the verl tree to FILE, for another tree.

    Exits with 1 if a patch cannot be exported.
    """
    with nothing_on_stdout():
        found = _look(options, words)
    exported = [patch for patched_file in found.files for patch in patched_file.patches]
    left = [patch for patched_file in found.files for patch in patched_file.not_carried]
    output.write(file, patchset.dump(exported, found.verl, version()))
    print(
        harmless(f"{counted(len(exported), 'patch', 'patches')} of {found.folder} written to {file}"),
        file=sys.stderr,
    )
    _hint(found, words)
    for patch in left:
        note = f"not exported: {patch.path}:{patch.line}  {patch.marker}: {patch.reason}"
        print(harmless(note), file=sys.stderr)
    return ExitCode.FAILED if left or found.markers.cut else ExitCode.OK


@patches.command(
    "apply", epilog="Exit codes: 0 each patch fits or is in place, 1 one does not, 2 FILE cannot be used."
)
@target_options
@click.argument("file", type=PATH, metavar="FILE")
@click.option("--apply", "apply_them", is_flag=True, help="Write the files; undo reverts it.")
def apply_patches(*, options: Options, file: Path, apply_them: bool) -> int:
    """Apply the patches of FILE to the verl tree. Without --apply the diff is shown.

    A patch of a Python statement fits if exactly one place in the same function or class has the same syntax
    tree; any other patch, if exactly one place has the same lines or the same context.
    """
    wanted = patchset.load(file)
    with nothing_on_stdout():
        found = _look(options, (), wanted)
    present = {patch.identity for patched_file in found.files for patch in patched_file.patches}
    states: dict[AnyPatch, str] = {patch: "already in place" for patch in wanted if patch.identity in present}
    waiting = [patch for patch in wanted if patch not in states]
    changes = list(repatch.changes(waiting, found.folder, states, found.checkout))
    if apply_them and changes:
        home = journal_home(found.session.target, links.places(changes))
        codes = sorted({patch.marker for patch in wanted if patch not in states})
        try:
            done = engine.apply(changes, home, fix="patches apply", code=", ".join(codes))
        except engine.Refused as error:
            raise UsageError(str(error)) from None
        name = f"{home}/{done.id}" if done else ""
        print(harmless(f"verl-doctor undo {name}  # reverts it"), file=sys.stderr)
    for change in [] if apply_them else changes:
        names = (f"a{change.path}", f"b{change.path}")
        print(harmless("".join(unified(change.before, change.after, names)), keep="\n\t"), end="")
    for patch in wanted:
        state = states.get(patch, "applied" if apply_them else "would be applied")
        print(harmless(f"{patch.marker}  {patch.place}  {state}"))
    if not wanted:
        print(harmless(f"no patches in {file}"))
    if changes and not apply_them:
        command = ["verl-doctor", "patches", "apply", str(file), "--apply", *found.session.target.arguments]
        print(harmless(f"nothing was changed; to write these lines: {shlex.join(command)}"), file=sys.stderr)
    return ExitCode.FAILED if any(state.startswith("refused") for state in states.values()) else ExitCode.OK


@dataclass(frozen=True)
class _Found:
    """The examined tree, and its patches."""

    session: Session
    markers: Markers
    files: list[PatchedFile]
    verl: str

    @property
    def folder(self) -> Path:
        return Path(self.markers.folder)

    @property
    def checkout(self) -> Path | None:
        return Path(self.markers.checkout) if self.markers.checkout else None

    def top(self, patch: AnyPatch) -> Path:
        """The folder below which the file of a patch lies."""
        beside = isinstance(patch, LinePatch) and patch.base == "checkout"
        return self.checkout or self.folder if beside else self.folder


def _look(options: Options, words: Iterable[str] = (), wanted: Iterable[AnyPatch] = ()) -> _Found:
    """Read the tree. These words, and the markers of the wanted patches, always count as markers."""
    with nothing_on_stdout():
        session = open_session(options)
        collection = session.look()
        markers, trees = collection.get(Markers), collection.get(VerlTrees)
    if isinstance(markers, Unknown):
        if not isinstance(markers, Absent):
            raise CannotJudgeError(markers.reason)
        raise UsageError(f"{markers.reason}; name a tree with --verl DIR")
    if damaged := [word for word in words if not is_marker(word)]:
        raise UsageError(f"--marker {damaged[0]}: a marker is one word of letters and digits, such as Uky")
    known = {*words, *(patch.marker for patch in wanted)}
    markers = markers_in(markers.folder, Marker(session.config.marker), known, checkout=True)
    if markers.cut:
        print(
            harmless(f"{markers.checkout} has too many files to read: some marked lines may not be listed"),
            file=sys.stderr,
        )
    verl = "" if isinstance(trees, Unknown) else trees.imported.version
    return _Found(session, markers, patched_files(markers, session.config.marker), verl)


def _hint(found: _Found, words: Iterable[str]) -> None:
    """Name --marker if only ours was recognised: a word on added lines alone looks like any comment."""
    ours = f"{found.session.config.marker}:"
    if not any(words) and all(line.marker.startswith(ours) for line in found.markers.lines):
        print(
            (
                "To include added lines that you marked with your own word, pass --marker WORD; without it, "
                "a word counts only if the replaced line is kept as a comment."
            ),
            file=sys.stderr,
        )


def _journalled(session: Session) -> int:
    """Show the repairs in the journal; return how many are lost."""
    found = history(session.target, session.machine)
    if found.damaged:
        raise UsageError("; ".join(found.damaged))
    lost = 0
    for transaction in (recorded.transaction for recorded in found.here):
        if transaction.state == "applied":
            gone = [change for change in transaction.changes if change.standing in LOST]
            lost += bool(gone)
            state = "is in place" if not gone else f"{gone[0].now}: {gone[0].path}"
            print(harmless(f"{transaction.id}  {transaction.code}  {transaction.fix}  {state}"))
    return lost


def _standing(found: _Found, found_needs: dict[AnyPatch, Need]) -> None:
    """Show the patches in the tree. None of them can be lost."""
    for patch, need in found_needs.items():
        print(harmless(f"{patch.marker}  {patch.place}  {_in_place(need)}"))
    for file in found.files:
        for left in file.not_carried:
            print(harmless(f"{left.marker}  {left.path}:{left.line}  in place, not checked: {left.reason}"))


def _in_place(need: Need) -> str:
    return _EXPIRED if need == "expired" else "in place"


def _text(line: MarkedLine) -> str:
    """The line itself. It is only printed: facts do not contain it."""
    source = read(Path(line.path))
    lines = [] if isinstance(source, Unreadable) else source.decode("utf-8", "replace").splitlines()
    return "".join(lines[line.line - 1 : line.line]).strip()
