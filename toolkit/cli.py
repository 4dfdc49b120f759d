"""The command line: options in, sentences and exit codes out. No judgement lives here."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from verl_doctor.toolkit.cli_group import EPILOG, Group
from verl_doctor.toolkit.garbage import leave_it_at_exit
from verl_doctor.toolkit.node_request import CouldNotAsk
from verl_doctor.toolkit.refused import said_by
from verl_doctor.toolkit.streams import NOBODY_READS, end_stdout, give_up_stdout, open_closed_streams
from verl_doctor.toolkit.target import UsageError
from verl_doctor.toolkit.text import harmless

# The machine's fault, not ours.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})

_STOPPED = "stopped; verl-doctor undo --list shows whether anything was changed"

_ELSEWHERE = {
    **dict.fromkeys(("check", "fix"), "cli_check"),
    "checklist": "cli_checklist",
    "sites": "cli_sites",
    "guard": "cli_guard",
    "actors": "cli_actors",
    "clean": "cli_clean",
    "compare": "cli_compare",
    "snapshot": "cli_snapshot",
    "smoke": "cli_smoke",
    "logs": "cli_logs",
    "watch": "cli_watch",
    "warmup": "cli_warmup",
    "undo": "cli_changes",
    "environment": "cli_environment",
    "matrix": "cli_matrix",
    "patches": "cli_patches",
    "tiny": "cli_tiny",
    "script": "cli_script",
    "report": "cli_report",
    **dict.fromkeys(("rules", "explain", "plugins", "schema", "completion", "demo"), "cli_docs"),
}

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
        "tiny": "tiny data and a tiny random model, for trials",
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
        "sites": "this cluster's own paths",
        "patches": "patched lines: listed, verified, carried on",
    },
    "Looking things up": {
        "explain": "one rule, or a topic: card, debugging, variables",
        "rules": "all rules: what each finds, and its fix",
        "environment": "what the workers will see of each variable",
        "matrix": "which vLLM releases this verl runs on",
        "demo": "check, fix and undo on a miniature, in seconds",
        "plugins": "what other distributions add",
        "schema": "the JSON schema of what a command prints",
        "completion": "the completion script of a shell",
    },
}
"""The commands as --help lists them."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line. What goes wrong is said in one sentence on stderr; a traceback needs -v."""
    open_closed_streams()
    leave_it_at_exit()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = cli.main(given, prog_name="verl-doctor", standalone_mode=False) or 0
        end_stdout()
        sys.exit(code)
    except UsageError as error:
        _stop(str(error), 2)
    except click.UsageError as error:
        hint = f"; see: {error.ctx.command_path} --help" if error.ctx else ""
        _stop(error.format_message().rstrip(".") + hint, 2)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except CouldNotAsk as error:
        _stop(str(error), 3)
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
        if isinstance(error, OSError) and error.errno in _FULL:
            give_up_stdout()
            _stop(f"could not finish: {said_by(error)}", 3)
        where = traceback.extract_tb(error.__traceback__)[-1]
        _stop(
            f"could not check: {type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno}); "
            f"this is a defect of verl-doctor, please report it with the output of -v",
            3,
        )


def _stop(sentence: str, code: int) -> NoReturn:
    print(f"verl-doctor: {harmless(sentence)}", file=sys.stderr)
    sys.exit(code)


@click.group(
    cls=Group,
    elsewhere=_ELSEWHERE,
    sections=_SECTIONS,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="verl-doctor", message="verl-doctor %(version)s")
def cli() -> None:
    """Judge a verl environment before the job starts, repair it, and take repairs back.

    The environment that is active is examined; --python examines another one. A COMMAND tells more with --help.
    """
