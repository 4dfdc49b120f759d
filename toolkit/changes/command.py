"""Commands, run as a child without a shell. Their effects cannot be undone."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess

from verl_doctor.toolkit.change import RunCommand
from verl_doctor.toolkit.changes import journal
from verl_doctor.toolkit.changes.records import CommandRecord, Entry, Planned
from verl_doctor.toolkit.system.errors import Refused, os_error_text

_OUTCOME = "outcome.json"
_STANDARD_ERROR = 2


def plan(change: RunCommand) -> Planned:
    """Return the record of a command; its fix decides whether it is needed.

    Raises Refused if it cannot be found.
    """
    if not change.argv or shutil.which(change.argv[0]) is None:
        raise Refused(
            f"{change.argv[0] if change.argv else 'an empty command'} is not a program that can be run here"
        )
    return Planned(CommandRecord("run_command", change.argv, change.why), {})


def run(entry: Entry, index: int, record: CommandRecord) -> None:
    """Run the command with its output on standard error, and record its exit code.

    Raises Refused if it cannot be started or fails, and OSError if the journal cannot be written.
    """
    journal.note(entry, index, _OUTCOME, _document(None))
    try:
        done = subprocess.run(record.argv, stdin=subprocess.DEVNULL, stdout=_STANDARD_ERROR, check=False)
    except (OSError, ValueError) as error:
        cause = os_error_text(error) if isinstance(error, OSError) else str(error)
        raise Refused(f"`{command_line(record)}` could not be started: {cause}") from None
    journal.note(entry, index, _OUTCOME, _document(done.returncode))
    if done.returncode:
        ended = (
            f"with exit code {done.returncode}" if done.returncode > 0 else f"by signal {-done.returncode}"
        )
        raise Refused(f"`{command_line(record)}` ended {ended}; its messages are above")


def was_run(entry: Entry) -> bool:
    """Return whether a command of this transaction was started. Raises OSError."""
    return any(
        isinstance(record, CommandRecord) and journal.noted(entry, index, _OUTCOME) is not None
        for index, record in enumerate(entry.changes)
    )


def command_line(record: CommandRecord) -> str:
    """Return the command as a user would type it."""
    return shlex.join(record.argv)


def _document(exit_code: int | None) -> bytes:
    return json.dumps({"exit_code": exit_code}).encode("ascii") + b"\n"
