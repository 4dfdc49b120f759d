"""A gate before a job: the agreement, the environment, and the repairs that must be in place."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.commands.guard import guard
from verl_doctor.toolkit.commands.guard.agreement import NAME, Agreement, Bases, expected_names, nearest, read
from verl_doctor.toolkit.commands.guard.files import Found, all_found
from verl_doctor.toolkit.commands.guard.guard import Here, Term
from verl_doctor.toolkit.engine import config
from verl_doctor.toolkit.engine.discovery import discover
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.system.ownership import why_not_ours
from verl_doctor.toolkit.target import Options, Target, UsageError, own_journal

LOST = frozenset({"lost", "gone", "changed"})


@dataclass(frozen=True)
class Gate:
    """`lock` is the file of the agreement, "" if there is none; `unread` is why an existing one is not read.

    `outweighed` has the names of what the configuration overrides, and its file; `expected` everything that
    it requires.
    """

    target: Target
    here: Here
    agreement: Agreement
    marker: Marker
    lock: str = ""
    unread: str = ""
    outweighed: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)

    @property
    def tree(self) -> Path | None:
        """The package folder of the agreed verl."""
        return None if self.agreement.verl is None else self.here.bases.path(self.agreement.verl)

    def may_be_repaired(self) -> bool:
        """Return whether it is the agreed environment; others are not repaired."""
        return all(term.status == "pass" for term in guard.of_environment(self.agreement, self.here))

    def files(self) -> list[Found]:
        """Return every repaired file as it is now: those agreed, and those repaired since.

        Raises Refused.
        """
        agreed = list(self.agreement.files)
        home, bases = own_journal(self.target), self.here.bases
        if os.path.isdir(home):
            from verl_doctor.toolkit.commands.guard.journal import journalled  # noqa: PLC0415 - most environments have none

            known = {agreed_file.place for agreed_file in agreed}
            later = journalled(home, bases, self.marker, self.agreement.written)
            agreed += (agreed_file for agreed_file in later if agreed_file.place not in known)
        return all_found(agreed, bases)

    def lost(self) -> list[Found]:
        """Return the files that have lost their repairs. Raises Refused."""
        return [file for file in self.files() if file.state in LOST]

    def judged(self) -> tuple[Term, ...]:
        """Return every agreed item with its present state."""
        return tuple(self._judged())

    def _judged(self) -> Iterator[Term]:
        files: list[Found] = []
        if self.unread:
            yield Term("the agreement", "skipped", self.lock, reason=self.unread)
        try:
            files = self.files()
        except Refused as error:
            yield Term("the journal", "skipped", "readable", reason=str(error))
        yield from guard.judged(self.agreement, self.here, files)


def opened(options: Options, lock: Path | None, *, in_image: bool) -> Gate:
    """Read what was agreed. Raises UsageError when the agreement or the configuration is damaged."""
    machine = Machine()
    target, configured = discover(options, machine), config.load(machine.cwd)
    path = machine.cwd / lock if lock is not None else nearest(machine.cwd)
    unread = "" if path is None else _why_unread(path, named=lock is not None)
    agreement = Agreement() if path is None or unread else read(path)
    bases = Bases(target.prefix, machine.cwd if path is None else path.parent)
    here = Here(machine, target.python, bases, target.verl, in_image or guard.is_image_build(machine))
    return Gate(
        target,
        here,
        agreement.with_expected(configured),
        Marker(configured.marker),
        "" if path is None else str(path),
        unread,
        dict.fromkeys(agreement.outweighed(configured), configured.path),
        dict.fromkeys(expected_names(configured), configured.path),
    )


def _why_unread(path: Path, *, named: bool) -> str:
    """Return why an agreement is not read, "" if it is.

    Raises UsageError if it is not a file, or was `named` and does not exist. A named one is trusted, whoever
    wrote it.
    """
    if not named and (why := why_not_ours(path, group_counts=True)):
        return f"{path} is ignored: {why}; if you trust it, pass --lock {shlex.quote(str(path))}"
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would block
            raise UsageError(f"{path} is not a regular file; write an agreement with: {guard.AGREE_ANEW}")
        path.open("rb").close()
    except OSError as error:
        if named and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise UsageError(f"{path}: no such file; write it with: {guard.AGREE_ANEW}") from None
        return f"{path} cannot be read: {error.strerror}"
    return ""


def new_lock(machine: Machine, lock: Path | None) -> Path:
    """Return where to write an agreement: the named file, an existing one, or one by the configuration.

    Raises UsageError if the existing one may be another user's.
    """
    if lock is not None:
        return machine.cwd / lock
    if existing := nearest(machine.cwd):
        if why := why_not_ours(existing, group_counts=True):
            raise UsageError(f"{existing} is not overwritten: {why}; name a file after --agree")
        return existing
    configured = config.load(machine.cwd).path
    return (Path(configured).parent if configured else machine.cwd) / NAME
