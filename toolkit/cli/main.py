"""The command line: options in, sentences and exit codes out. No judgement lives here."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from verl_doctor.toolkit.cli.group import Group, help_command
from verl_doctor.toolkit.cluster.node_request import CouldNotAsk
from verl_doctor.toolkit.console.masked import masked_streams
from verl_doctor.toolkit.console.streams import (
    NOBODY_READS,
    CannotPrintError,
    end_stdout,
    give_up_stdout,
    open_closed_streams,
)
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.options import completion
from verl_doctor.toolkit.options.exit_codes import EPILOG
from verl_doctor.toolkit.process.gc_pause import leave_it_at_exit
from verl_doctor.toolkit.system.errors import said_by
from verl_doctor.toolkit.target import CannotJudgeError, UsageError
from verl_doctor.toolkit.text import harmless

# The machine's fault, not ours.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF})
_OUT_OF_MEANS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})

_STOPPED = "stopped; verl-doctor undo --list shows whether anything was changed"

_SECTIONS = {
    "The four that matter first": {
        "check": "what here would stop or slow a verl job",
        "fix": "the repairs as a diff; --apply carries them out",
        "undo": "take the last repair back, byte for byte",
        "logs": "why a run failed: its first cause",
    },
    "Before a job": {
        "smoke": "try what the job will do; the first rung that breaks",
        "warmup": "its files into memory before it starts",
        "script": "a DEBUG or FAST_LOAD variant of its launch script",
        "guard": "stop a job that would not find what was agreed",
    },
    "While it runs, and after": {
        "actors": "who lives on which GPU; which ranks are alive",
        "watch": "what will run out first, and when",
        "clean": "what dead jobs have left behind; --apply removes it",
        "report": "a page to paste into an issue of verl",
    },
    "Moving to another cluster": {
        "snapshot": "all facts of a cluster that works, to keep",
        "compare": "what differs from it, what matters first",
        "checklist": "how far the move has come, step by step",
        "patches": "patched lines: listed, verified, carried on",
    },
    "Looking things up": {
        "explain": "a rule, a topic, all rules, what workers see",
        "matrix": "which vLLM releases this verl runs on",
    },
}
"""The commands as --help lists them."""

_HIDDEN = ("demo", "environment", "sites", "tiny")
"""Commands that the help leaves out: other commands and the documentation lead there."""

_RENAMED = {
    "rules": ("explain", "--list"),
    "plugins": ("explain", "--plugins"),
    "schema": ("explain", "--schema"),
    "completion": ("explain", "--completion"),
}
"""Commands of 0.1.0, which work for one more release."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line. What goes wrong is said in one sentence on stderr; a traceback needs -v."""
    open_closed_streams()
    leave_it_at_exit()
    with masked_streams():
        _run(arguments)


def _run(arguments: Sequence[str] | None) -> NoReturn:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if completion.VARIABLE in os.environ:
        completion.register()
    try:
        code = cli.main(given, prog_name="verl-doctor", standalone_mode=False) or 0
        end_stdout()
        sys.exit(code)
    except UsageError as error:
        _stop(str(error), ExitCode.WRONG_USAGE)
    except click.UsageError as error:
        hint = f"; see: {error.ctx.command_path} --help" if error.ctx else ""
        _stop(error.format_message().rstrip(".") + hint, ExitCode.WRONG_USAGE)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (CouldNotAsk, CannotPrintError, CannotJudgeError) as error:
        _stop(str(error), ExitCode.COULD_NOT_CHECK)
    except (click.Abort, KeyboardInterrupt):
        _stop(_STOPPED, 130)
    except BrokenPipeError:
        give_up_stdout()
        sys.exit(NOBODY_READS)
    except Exception as error:  # noqa: BLE001 - a defect of the doctor must not look like a finding
        if isinstance(error.__cause__, KeyboardInterrupt):  # in the body of a class, before Python 3.12
            _stop(_STOPPED, 130)
        if {"-v", "--verbose"} & set(given):
            traceback.print_exc()
        if isinstance(error, OSError) and error.errno in _FULL | _OUT_OF_MEANS:
            give_up_stdout()
            _stop(f"could not finish: {said_by(error)}", ExitCode.COULD_NOT_CHECK)
        where = traceback.extract_tb(error.__traceback__)[-1]
        _stop(
            f"could not check: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno}); "
            f"this is a defect of verl-doctor, please report it with the output of -v",
            ExitCode.COULD_NOT_CHECK,
        )


def _stop(sentence: str, code: int) -> NoReturn:
    print(f"verl-doctor: {harmless(sentence)}", file=sys.stderr)
    sys.exit(code)


@click.group(
    cls=Group,
    sections=_SECTIONS,
    hidden=_HIDDEN,
    renamed=_RENAMED,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="verl-doctor", message="verl-doctor %(version)s")
def cli() -> None:
    """Judge a verl environment before the job starts, repair it, and take repairs back.

    `verl-doctor run.sh` judges the job that run.sh starts, in the environment
    that is active; --python names another one. `verl-doctor help COMMAND` has
    the options of a command.
    """


cli.add_command(help_command)
