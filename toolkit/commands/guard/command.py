"""The command `guard`: a gate in front of a job. Silent when it may pass; one line, and an exit code, when it may not."""

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
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.options.options import (
    OTHER_TREES,
    PATH,
    Duration,
    FileToWrite,
    force_option,
    refuses,
    target_options,
)
from verl_doctor.toolkit.system.errors import Refused
from verl_doctor.toolkit.target import Options, UsageError
from verl_doctor.toolkit.text import counted, harmless
from verl_doctor.toolkit.verdict import WORDS

_EPILOG = "Exit codes: 0 the job may start, 1 it may not, 2 wrong usage, 3 this could not be judged."
_WAIT = "15s"


@refuses(*OTHER_TREES, why="a job starts with what is installed; leave it out")
@click.command(epilog=_EPILOG)
@target_options
@click.option(
    "--agree",
    is_flag=True,
    help="Record the current environment as what every job needs; a FILE after it is that of --lock.",
)
@click.option(
    "--lock",
    type=PATH,
    metavar="FILE",
    help=f"The agreement.  [default: {NAME}, here or in a folder above]",
)
@force_option
@click.option("--apply", "apply_them", is_flag=True, help="Bring lost repairs back before judging.")
@click.option(
    "--wait",
    type=Duration(most="10m", bare=True),
    default=_WAIT,
    show_default=True,
    metavar="TIME",
    help="With --apply: how long ranks that do not repair wait for the one of their node that does.",
)
@click.option(
    "--when-unsure",
    type=click.Choice(("stop", "go")),
    default="stop",
    show_default=True,
    help="Whether the job starts when this cannot be judged.",
)
@click.option(
    "--in-image",
    is_flag=True,
    help="Judge only what an image under construction contains. Detected automatically in a BuildKit RUN.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="json: a document on stdout.",
)
@click.option("-v", "--verbose", is_flag=True, help="Report every agreed item on stderr.")
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
    """Stop a job that would not find what was agreed.

    \b
    RUN verl-doctor guard                       in a Dockerfile
    ENTRYPOINT ["verl-doctor", "guard", "--"]   as well
    verl-doctor guard || exit                   on top of a launch script

    What a team needs (packages, repairs, variables, driver, paths) is agreed
    once, with --agree, where a job runs well, and kept in git. A few files are
    read, and nothing is imported. Says nothing on stdout. Where all is well,
    COMMAND is started in place of this process.
    """  # noqa: D301 - click's mark for lines that stay as they are
    if agree:
        if len(command) == 1 and lock is None:
            lock, command = Path(command[0]), ()
        if command or apply_them:
            raise UsageError("--agree writes an agreement and starts nothing: leave --apply and COMMAND out")
        return _agree(options, lock, verbose=verbose)
    if command and form == "json":
        raise UsageError("--format json writes to stdout, which is COMMAND's: leave one of them out")
    program = _program(command)
    opened = guard_gate.opened(options, lock, in_image=in_image)
    refused = _brought_back(opened, wait) if apply_them else []
    answer = GuardAnswer(opened.judged(), opened.lock, opened.outweighed, when_unsure == "go")
    if form == "json":
        from verl_doctor.toolkit.console.view import show  # noqa: PLC0415 - most gates print nothing

        show(answer, form, None)
    if verbose:
        _tell_all(opened, answer.terms)
    if answer.verdict != "ok":
        _tell(_why(answer.terms, answer.verdict, when_unsure, refused, opened, options))
    code = answer.exit_code()
    if code == 0 and program:
        _become(program, command)
    return code


def _brought_back(opened: Gate, wait: float) -> list[str]:
    """Bring lost repairs back, or wait for the process of this node that does; the reasons why one could not be."""
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
                    else "as the journal of this environment says"
                )
                _tell(f"brought back {', '.join(map(str, outcome.written))}, {by}")
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
    """The one line: what is wrong first, how much else, and the next step, or why it could not be taken."""
    wrong = [term for term in terms if term.status == ("fail" if verdict == "failures" else "skipped")]
    if not wrong:
        where = f"no {NAME} in {Path.cwd()} or above it"
        agree = f"write it where jobs run well: {gate.AGREE_ANEW}"
        if why := _without_verl(options):
            return f"{WORDS[verdict]}  {why}; nothing is agreed here ({where}); {agree}"
        return f"{WORDS[verdict]}: nothing is agreed here ({where}); {agree}"
    more = f"; and {counted(len(wrong) - 1, 'more thing')} (-v lists all)" if len(wrong) > 1 else ""
    if verdict == "could_not_check":
        goes = "the job goes on all the same" if when_unsure == "go" else "stopped"
        return f"{WORDS[verdict]}, {goes}: {wrong[0]}{more}"
    step = "; ".join(refused) or wrong[0].next_step
    if by := opened.expected.get(wrong[0].subject):
        source = (f"expected in {by}", "or, if this is meant, change it there")
    else:
        source = (
            f"agreed in {opened.lock}" if opened.lock else "",
            f"or, if this is meant: {gate.AGREE_ANEW}",
        )
    return "; ".join(filter(None, (f"{WORDS[verdict]}, stopped: {wrong[0]}{more}", step, *source)))


def _without_verl(options: Options) -> str:
    """Why there is no verl to judge; "" where there is one. Only a gate without an agreement takes the time."""
    from verl_doctor.toolkit.engine import session  # noqa: PLC0415 - a gate does without all rules and facts

    with nothing_on_stdout():
        return session.without_verl(session.open_session(options).look())


def _agree(options: Options, lock: Path | None, *, verbose: bool) -> int:
    """Write the agreement, and say what is in it."""
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
            _tell(f"{WORDS['could_not_check']}  {why}; nothing is agreed, and {path} is not written")
            return ExitCode.COULD_NOT_CHECK
    output.write(path, dump(agreement, session.version()))
    _tell(f"agreed in {path}: {', '.join(_agreed(agreement))}; keep it in git, beside the launch scripts")
    if secret := guard_agree.not_agreed(seen):
        _tell(f"not agreed, since their values may hold a secret: {', '.join(secret)}")
    if verbose:
        opened = guard_gate.opened(options, path, in_image=False)
        _tell_all(opened, opened.judged())
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
    """The program that a command starts, "" for none. Raises UsageError when there is none of that name."""
    if not command:
        return ""
    if program := shutil.which(command[0]):
        return program
    if os.path.exists(command[0]):
        raise UsageError(
            f"{command[0]} is no program that may be run: chmod +x, or name its interpreter before it"
        )
    raise UsageError(f"{command[0]}: there is no such command; an agreement is named with --lock FILE")


def _become(program: str, command: Sequence[str]) -> NoReturn:
    """Go on as this command, in the same process: its parent, its signals and its streams stay what they are."""
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what it starts would too
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execv(program, list(command))  # noqa: S606 - no shell may change the words
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror}") from None


def _tell_all(opened: Gate, terms: Iterable[Term]) -> None:
    for term in terms:
        _tell(f"{term.status.replace('_', ' ')}: {term}")
    for name, file in opened.outweighed.items():
        _tell(f"{name} is demanded by {file}, which outweighs the agreement")


def _tell(sentence: str) -> None:
    print(f"verl-doctor guard: {harmless(sentence)}", file=sys.stderr)
