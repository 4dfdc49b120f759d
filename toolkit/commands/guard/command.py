"""The command `guard`: a gate before a job.

Silent if the job may start; otherwise one line and an exit code.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NoReturn

import click

from verl_doctor.toolkit.commands.guard import gate as guard_gate
from verl_doctor.toolkit.commands.guard import guard as gate
from verl_doctor.toolkit.commands.guard.agreement import NAME, Agreement, Bases, dump
from verl_doctor.toolkit.commands.guard.answer import GuardAnswer
from verl_doctor.toolkit.commands.guard.gate import Gate
from verl_doctor.toolkit.commands.guard.guard import Term
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.engine.plugin_exit import execute
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.options.shared import refuses, shared_option
from verl_doctor.toolkit.options.target_options import target_options
from verl_doctor.toolkit.options.value_types import OTHER_TREES, PATH, Duration, FileToWrite, force_option
from verl_doctor.toolkit.process.signals import ignore_as_inherited
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.target import Options, UsageError
from verl_doctor.toolkit.text import counted, harmless
from verl_doctor.toolkit.verdict import WORDS

_EPILOG = "Exit codes: 0 the job may start, 1 it may not, 2 wrong usage, 3 this could not be checked."
_WAIT = "15s"


@refuses(*OTHER_TREES, why="a job uses what is installed; remove this option")
@click.command(epilog=_EPILOG)
@target_options
@click.option(
    "--agree",
    is_flag=True,
    help="Record the current environment as what every job needs, in FILE or in the file of --lock.",
)
@click.option(
    "--lock",
    type=PATH,
    metavar="FILE",
    help=f"The agreement.  [default: {NAME}, here or in a folder above]",
)
@force_option
@click.option("--apply", "apply_them", is_flag=True, help="Restore lost repairs before checking.")
@click.option(
    "--wait",
    type=Duration(most="10m", bare=True),
    default=_WAIT,
    show_default=True,
    metavar="TIME",
    help="With --apply: how long other ranks wait for the rank of their node that repairs.",
)
@click.option(
    "--when-unsure",
    type=click.Choice(("stop", "go")),
    default="stop",
    show_default=True,
    help="Whether the job starts if this cannot be checked.",
)
@click.option(
    "--in-image",
    is_flag=True,
    help="Check only what an image under construction contains. Detected automatically in a BuildKit RUN.",
)
@shared_option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="json: a document on stdout.",
)
@shared_option("-v", "--verbose", is_flag=True, help="Report every agreed item on stderr.")
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]")
def guard(
    *,
    options: Options,
    agree: bool,
    lock: Path | None,
    apply_them: bool,
    wait: float,
    when_unsure: Literal["stop", "go"],
    in_image: bool,
    form: str,
    verbose: bool,
    command: tuple[str, ...],
) -> int:
    """Stop a job whose environment differs from the agreed one.

    \b
    RUN verl-doctor guard                       in a Dockerfile
    ENTRYPOINT ["verl-doctor", "guard", "--"]   or as its entry point
    verl-doctor guard || exit                   at the top of a launch script

    What a team needs (packages, repairs, variables, driver, paths) is agreed
    once, with --agree, where a job runs well, and kept in git. A few files are
    read, and nothing is imported. Prints nothing on stdout. If all is well,
    COMMAND replaces this process.
    """  # noqa: D301 - click's mark for lines that stay as they are
    if agree:
        if len(command) == 1 and lock is None:
            lock, command = Path(command[0]), ()
        if command or apply_them:
            raise UsageError("--agree writes an agreement and starts nothing: remove --apply and COMMAND")
        return _agree(options, lock, verbose=verbose)
    if command and form == "json":
        raise UsageError("--format json writes to stdout, which belongs to COMMAND: remove one of them")
    program = _program(command)
    opened = guard_gate.opened(options, lock, in_image=in_image)
    refused = _brought_back(opened, wait) if apply_them else []
    answer = GuardAnswer(opened.judged(), opened.lock, opened.outweighed, when_unsure == "go")
    if form == "json":
        from verl_doctor.toolkit.console.view import show  # noqa: PLC0415 - most gates print nothing

        show(answer, form, None)
    if verbose:
        _announce_all(opened, answer.terms)
    if answer.verdict != "ok":
        _announce(_why(answer.terms, answer.verdict, when_unsure, refused, opened, options))
    code = answer.exit_code()
    if code == 0 and program:
        _become(program, command)
    return code


def _brought_back(opened: Gate, wait: float) -> list[str]:
    """Restore lost repairs, or wait for this node's process that does; return the reasons for failures."""
    try:
        lost = opened.lost()
        if not lost or not opened.may_be_repaired():
            return []
        from verl_doctor.toolkit.commands.guard import repair  # noqa: PLC0415 - most gates do without the change engine

        if repair.is_first_of_node(opened.here.machine.environ):
            outcome = repair.bring_back(opened, lost)
            if outcome.written:
                by = (
                    f"as agreed in {opened.lock}"
                    if opened.lock
                    else "according to this environment's journal"
                )
                _announce(f"restored {', '.join(map(str, outcome.written))}, {by}")
            return list(outcome.refused)
        repair.wait_for(lambda: not opened.lost(), wait)
    except Refused as error:
        return [str(error)]
    return []


def _why(
    terms: Sequence[Term],
    verdict: gate.Verdict,
    when_unsure: str,
    refused: Sequence[str],
    opened: Gate,
    options: Options,
) -> str:
    """The single line: the first problem, how many more, and the next step, or why it failed."""
    wrong = [term for term in terms if term.status == ("fail" if verdict == "failures" else "skipped")]
    if not wrong:
        where = f"no {NAME} in {Path.cwd()} or above it"
        agree = f"write one where jobs run well: {gate.AGREE_ANEW}"
        if why := _without_verl(options):
            return f"{WORDS[verdict]}  {why}; no agreement here ({where}); {agree}"
        return f"{WORDS[verdict]}: no agreement here ({where}); {agree}"
    more = f"; and {counted(len(wrong) - 1, 'more difference')} (-v lists all)" if len(wrong) > 1 else ""
    if verdict == "could_not_check":
        goes = "the job starts anyway" if when_unsure == "go" else "stopped"
        return f"{WORDS[verdict]}, {goes}: {wrong[0]}{more}"
    step = "; ".join(refused) or wrong[0].next_step
    if by := opened.expected.get(wrong[0].subject):
        source = (f"expected in {by}", "or, if this is intended, change it there")
    else:
        source = (
            f"agreed in {opened.lock}" if opened.lock else "",
            f"or, if this is intended: {gate.AGREE_ANEW}",
        )
    return "; ".join(filter(None, (f"{WORDS[verdict]}, stopped: {wrong[0]}{more}", step, *source)))


def _without_verl(options: Options) -> str:
    """Why there is no verl to judge; "" if there is one.

    Used only without an agreement, because it is slow.
    """
    from verl_doctor.toolkit.engine import session  # noqa: PLC0415 - a gate does without all rules and facts

    with nothing_on_stdout():
        return session.without_verl(session.open_session(options).look())


def _agree(options: Options, lock: Path | None, *, verbose: bool) -> int:
    """Write the agreement, and print what it contains."""
    from verl_doctor.toolkit.commands.guard import agree as guard_agree  # noqa: PLC0415 - a gate does without all rules and facts
    from verl_doctor.toolkit.console import output  # noqa: PLC0415 - a gate does without all rules and facts
    from verl_doctor.toolkit.engine import session  # noqa: PLC0415 - a gate does without all rules and facts
    from verl_doctor.toolkit.engine.examination import Request, observe  # noqa: PLC0415 - see above

    machine = Machine()
    lock_file = FileToWrite(output.AGREEMENT)
    path = lock_file.convert(guard_gate.new_lock(machine, lock), None, click.get_current_context())
    with nothing_on_stdout():
        run = session.open_session(options)
        bases = Bases(run.target.prefix, path.parent)
        seen = observe(Request(run))
        agreement = guard_agree.agreement_here(run, seen, bases)
        if why := session.without_verl(seen) if guard_agree.is_empty(agreement) else "":
            _announce(f"{WORDS['could_not_check']}  {why}; {path} was not written")
            return ExitCode.COULD_NOT_CHECK
    output.write(path, dump(agreement, session.version()))
    _announce(f"agreed in {path}: {', '.join(_agreed(agreement))}; keep it in git, beside the launch scripts")
    if secret := guard_agree.not_agreed(seen):
        _announce(f"not agreed, because their values may be secrets: {', '.join(secret)}")
    if verbose:
        opened = guard_gate.opened(options, path, in_image=False)
        _announce_all(opened, opened.judged())
    return ExitCode.OK


def _agreed(agreement: Agreement) -> Iterator[str]:
    yield f"Python {agreement.python}"
    for number, noun in (
        (len(agreement.packages), "package"),
        (len(agreement.files), "repaired file"),
        (len(agreement.variables), "variable"),
        (len(agreement.sites), "site"),
    ):
        yield counted(number, noun)
    if agreement.driver:
        yield f"driver {agreement.driver}"


def _program(command: Sequence[str]) -> str:
    """The program that a command starts, "" for none. Raises UsageError if it does not exist."""
    if not command:
        return ""
    if program := shutil.which(command[0]):
        return program
    if os.path.exists(command[0]):
        raise UsageError(f"{command[0]} is not executable: run chmod +x, or put its interpreter before it")
    raise UsageError(f"{command[0]}: no such command; to name an agreement use --lock FILE")


def _become(program: str, command: Sequence[str]) -> NoReturn:
    """Replace this process with the command; its parent, signals and streams stay the same."""
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and child processes would too
        signal.signal(number, signal.SIG_DFL)
    ignore_as_inherited()
    try:
        execute(program, list(command))
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror}") from None


def _announce_all(opened: Gate, terms: Iterable[Term]) -> None:
    for term in terms:
        _announce(f"{term.status.replace('_', ' ')}: {term}")
    for name, file in opened.outweighed.items():
        _announce(f"{name} is required by {file}, which overrides the agreement")


def _announce(sentence: str) -> None:
    print(f"verl-doctor guard: {harmless(sentence)}", file=sys.stderr)
