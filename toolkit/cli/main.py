"""The command line: options in, sentences and exit codes out. No judgement lives here."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from verl_doctor.toolkit.cli.group import Group, help_command
from verl_doctor.toolkit.cluster.node_request import CouldNotQuery
from verl_doctor.toolkit.console.masked import masked_streams
from verl_doctor.toolkit.console.streams import (
    NO_READER,
    CannotPrintError,
    end_stdout,
    give_up_stdout,
    open_closed_streams,
)
from verl_doctor.toolkit.engine.plugin_exit import limit_exit
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.options import completion
from verl_doctor.toolkit.options.exit_codes import EPILOG
from verl_doctor.toolkit.process.gc_pause import leave_it_at_exit
from verl_doctor.toolkit.process.signals import EndedBySignal, as_ctrl_c, heed_ends_of_children
from verl_doctor.toolkit.system.errors import os_error_text
from verl_doctor.toolkit.target import CannotJudgeError, UsageError
from verl_doctor.toolkit.text import harmless

# The machine's fault, not ours.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF})
_OUT_OF_MEANS = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})

_STOPPED = "stopped; verl-doctor undo --list shows whether anything was changed"

_SECTIONS = {
    "Start here": {
        "check": "find what would stop or slow down a verl job here",
        "fix": "show the repairs as a diff; --apply carries them out",
        "undo": "undo the last repair, byte for byte",
        "logs": "find the first cause of a failed run",
    },
    "Before a job": {
        "smoke": "try imports, GPUs, Ray, vLLM and one training step",
        "warmup": "read a job's files into memory before it starts",
        "script": "write a DEBUG or FAST_LOAD variant of a launch script",
        "guard": "stop a job whose environment differs from the agreed one",
    },
    "While it runs, and after": {
        "actors": "show which actors run on which GPU, and which ranks are alive",
        "watch": "forecast which disk or memory runs out first",
        "clean": "show what dead jobs left behind; --apply removes it",
        "report": "write a page to paste into an issue of verl",
    },
    "Moving to another cluster": {
        "snapshot": "save all facts of a working cluster",
        "compare": "show what differs from a snapshot",
        "checklist": "show the progress of the move, step by step",
        "patches": "list, verify, export and apply patches of a tree",
    },
    "Looking things up": {
        "explain": "explain a rule, a topic or the workers' variables",
        "matrix": "show which vLLM releases this verl works with",
    },
}
"""The commands as --help lists them."""

_HIDDEN = ("demo", "environment", "sites", "tiny")
"""Commands that the help omits; other commands and the documentation refer to them."""

_RENAMED = {
    "rules": ("explain", "--list"),
    "plugins": ("explain", "--plugins"),
    "schema": ("explain", "--schema"),
    "completion": ("explain", "--completion"),
}
"""Commands of 0.1.0, which work for one more release."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line. Errors are one sentence on stderr; a traceback needs -v."""
    open_closed_streams()
    heed_ends_of_children()
    _leave_out_devices()
    leave_it_at_exit()
    try:
        with masked_streams():
            _run(arguments)
    except SystemExit as end:
        if arguments is None:  # a process of its own
            limit_exit(end.code)
        raise


def _leave_out_devices() -> None:
    """Remove pipes and devices from the search path.

    Otherwise importlib.metadata reads them as zip files, without end.
    """
    sys.path[:] = [place for place in sys.path if not os.path.exists(place) or _is_plain(place)]


def _is_plain(place: str) -> bool:
    return os.path.isdir(place) or os.path.isfile(place)


def _usage(error: click.UsageError) -> str:
    """Return what is wrong with the command line, with similar options for a misspelt one."""
    if not isinstance(error, click.NoSuchOption):
        return error.format_message().rstrip(".")
    import difflib  # noqa: PLC0415 - only for a misspelt option

    names = {
        name.lstrip("-"): name for name in error.possibilities or ()
    }  # common dashes would make all similar
    near = difflib.get_close_matches(error.option_name.lstrip("-"), names, n=2)
    hint = f"; did you mean {' or '.join(names[name] for name in near)}?" if near else ""
    return f"No such option '{error.option_name}'{hint}"


def _run(arguments: Sequence[str] | None) -> NoReturn:
    given = sys.argv[1:] if arguments is None else list(arguments)
    if completion.VARIABLE in os.environ:
        completion.register()
    try:
        # The first signal ends the command as Ctrl-C does: children and temporary folders would outlive it
        # otherwise.
        with as_ctrl_c(signal.SIGTERM, signal.SIGHUP):
            code = cli.main(given, prog_name="verl-doctor", standalone_mode=False) or 0
        end_stdout()
        sys.exit(code)
    except UsageError as error:
        _stop(str(error), ExitCode.WRONG_USAGE)
    except click.UsageError as error:
        message = _usage(error)
        see = " See:" if message.endswith("?") else "; see:"
        _stop(
            f"{message}{see} {error.ctx.command_path} --help" if error.ctx else message, ExitCode.WRONG_USAGE
        )
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except (CouldNotQuery, CannotPrintError, CannotJudgeError) as error:
        _stop(str(error), ExitCode.COULD_NOT_CHECK)
    except (click.Abort, KeyboardInterrupt) as error:
        _stop(_STOPPED, _code_after(error))
    except BrokenPipeError:
        give_up_stdout()
        sys.exit(NO_READER)
    except Exception as error:  # noqa: BLE001 - a defect of the doctor must not look like a finding
        if isinstance(error.__cause__, KeyboardInterrupt):  # in the body of a class, before Python 3.12
            _stop(_STOPPED, _code_after(error.__cause__))
        if {"-v", "--verbose"} & set(given):
            traceback.print_exc()
        if isinstance(error, OSError) and error.errno in _FULL | _OUT_OF_MEANS:
            give_up_stdout()
            _stop(f"could not finish: {os_error_text(error)}", ExitCode.COULD_NOT_CHECK)
        where = traceback.extract_tb(error.__traceback__)[-1]
        _stop(
            f"could not check: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno}); "
            f"this is a defect of verl-doctor, please report it with the output of -v",
            ExitCode.COULD_NOT_CHECK,
        )


def _code_after(stopped: BaseException) -> int:
    """Return the exit code that shells give a process that this signal ended.

    An interrupt is hidden by click in its own exception.
    """
    first = stopped.__context__ if isinstance(stopped, click.Abort) else stopped
    return 128 + (first.args[0] if isinstance(first, EndedBySignal) else signal.SIGINT)


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
    """Check a verl environment before the job starts, repair it, and undo repairs.

    `verl-doctor run.sh` checks the job that run.sh starts, in the active environment; --python names another
    one. `verl-doctor help COMMAND` shows the options of a command.
    """


cli.add_command(help_command)
