"""`verl-doctor script`: a DEBUG or FAST_LOAD variant beside a launch script.

The variant is proven with verl's own configuration.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import click

from verl_doctor.toolkit.change import Change, NewFile, ReplaceFile
from verl_doctor.toolkit.changes import apply, links, safe_write
from verl_doctor.toolkit.changes.difference import unified
from verl_doctor.toolkit.collectors.configuration.configuration import UNDETERMINED, Configuration
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.commands.script.make import Made, NoVariant, make
from verl_doctor.toolkit.commands.script.proof import NoVerlError, at_path
from verl_doctor.toolkit.commands.script.value import as_written
from verl_doctor.toolkit.commands.script.variant import Kind, Recipe, path_of
from verl_doctor.toolkit.commands.smoke.longest_prompt import most_tokens
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import width_of
from verl_doctor.toolkit.engine.collect import Facts
from verl_doctor.toolkit.engine.examination import Request, examine
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.options.shared import refuses, shared_option
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import FILE_TO_WRITE, OTHER_TREES, PATH
from verl_doctor.toolkit.render.result_words import headline
from verl_doctor.toolkit.repair.recorded import history
from verl_doctor.toolkit.target import Options, UsageError, journal_home
from verl_doctor.toolkit.text import harmless, wrapped
from verl_doctor.toolkit.verdict import WORDS

_STDOUT = Path("-")
_DATA = ("data.train_files", "data.val_files")
_VALIDATED = "CFG114"  # verl's own validation


@refuses(*OTHER_TREES[2:], "--ray-address", why="it does not affect verl's configuration; remove it")
@click.command(
    epilog=(
        "Exit codes: 0 the variant was written, 1 it was not, and the reason is shown, 2 wrong usage, 3 NOT "
        "CHECKED."
    )
)
@target_options
@job_options
@click.option(
    "--debug", is_flag=True, help="Write a variant that takes two small steps, to test whether the job runs."
)
@click.option(
    "--fast-load", is_flag=True, help="Write a variant that trains in the same way but starts sooner."
)
@click.option(
    "--tiny", type=PATH, metavar="DIR", help="With --debug: the data that `verl-doctor tiny DIR` wrote."
)
@click.option("--one-node", is_flag=True, help="With --debug: on one node.")
@click.option(
    "--gpus",
    type=click.IntRange(1, 64),
    metavar="N",
    help="With --debug: the number of GPUs on each node, if the script does not set it.",
)
@shared_option(
    "--output",
    type=FILE_TO_WRITE,
    metavar="FILE",
    help="The file to write; - is stdout.  [default: SCRIPT_debug.sh]",
)
@click.option("--diff", is_flag=True, help="Show the difference from the script.")
@shared_option("--deep", is_flag=True, help="Also let verl itself validate the configuration.")
def script(
    *,
    options: Options,
    debug: bool,
    fast_load: bool,
    tiny: Path | None,
    one_node: bool,
    gpus: int | None,
    output: Path | None,
    diff: bool,
    deep: bool,
) -> int:
    """Write a DEBUG or FAST_LOAD variant of a launch script.

    The first tries the job in minutes, the second starts it sooner. Only overrides of verl's configuration
    change; every other byte stays, and replaced lines remain as comments. The variant is written only after
    verification: it is read again, and composed with the configuration of the installed verl.
    """
    if debug == fast_load:
        raise UsageError("choose a variant: --debug or --fast-load")
    if fast_load and (tiny or one_node or gpus):
        raise UsageError(
            "--tiny, --one-node and --gpus require --debug: --fast-load does not change the training"
        )
    kind: Kind = "DEBUG" if debug else "FAST_LOAD"
    try:
        with nothing_on_stdout(), Progress():
            session = open_session(options, deep=deep)
            named = _script(session)
            path = session.machine.cwd / output if output not in (None, _STDOUT) else path_of(named, kind)
            if os.path.realpath(path) == os.path.realpath(named):
                raise UsageError(f"--output {output} is the script itself; name another file")
            made = make(session, kind, path, _recipe(session, kind, tiny, one_node=one_node, gpus=gpus))
            as_check = examine(Request(at_path(session, path), known={Launch: made.after.launch})).report
    except NoVerlError as reason:  # printed when the line of progress is gone
        print(f"verl-doctor: {WORDS['could_not_check']}  {harmless(str(reason))}", file=sys.stderr)
        return ExitCode.COULD_NOT_CHECK
    except NoVariant as reason:
        print(f"verl-doctor: {harmless(str(reason))}", file=sys.stderr)
        return ExitCode.FAILED
    stream = sys.stdout
    if output == _STDOUT:
        sys.stdout.buffer.write(made.content)
        stream = sys.stderr
    else:
        _write(session, path, made.content, named, kind)
        print(harmless(f"{path}: the {kind} variant of {named.name}"))
    width = width_of(stream)
    verdict = "  ".join(headline(as_check))
    for sentence in (*_change_lines(made, deep=deep), f"verl-doctor check of the variant: {verdict}"):
        print("\n".join(wrapped(harmless(sentence), width, indent="  ", hanging="    ")), file=stream)
    if diff:
        rows = unified(named.read_bytes(), made.content, (str(named), str(path)))
        print("".join(harmless(row, keep="\n\t") for row in rows), end="", file=stream)
    return ExitCode.OK


def _script(session: Session) -> Path:
    """The shell script that was named."""
    files = session.target.files
    if not files:
        raise UsageError("name the launch script: verl-doctor script run.sh --debug")
    if files[0].suffix in (".py", ".yaml", ".yml", ".json") or "docker" in files[0].name.lower():
        raise UsageError(
            f"{files[0].name}: variants are made from shell scripts; name the script that starts verl "
            "with it, or pass the overrides yourself"
        )
    return files[0]


def _recipe(
    session: Session, kind: Kind, tiny: Path | None, *, one_node: bool, gpus: int | None
) -> Callable[[Configuration], Recipe]:
    if kind == "DEBUG":
        from verl_doctor.toolkit.commands.script.debug import debug  # noqa: PLC0415 - one of the two

        folder = None if tiny is None else _tiny(session.machine.cwd / tiny)
        if folder is not None:
            rows = _rows(session, folder / "train.parquet")
            return lambda configuration: debug(configuration, folder, rows=rows, one_node=one_node, gpus=gpus)
        seen = session.look()
        return lambda configuration: debug(
            configuration, one_node=one_node, gpus=gpus, prompt=_prompt(session, seen, configuration)
        )
    from verl_doctor.toolkit.commands.script.fast_load import fast_load, surroundings  # noqa: PLC0415 - see above

    around = surroundings(session.look())
    return lambda configuration: fast_load(configuration, around)


def _tiny(named: Path) -> Path:
    folder = Path(os.path.abspath(named))
    for name in ("train.parquet", "validation.parquet"):
        if not os.path.isfile(folder / name):
            raise UsageError(f"--tiny {folder}: {name} is missing; write it with verl-doctor tiny {folder}")
    return folder


def _rows(session: Session, file: Path) -> int | None:
    """The number of rows of a data file, read by the target's pyarrow; None if that fails."""
    target = replace(session.target, files=(), words=(), data=(file,))
    found = replace(session, target=target, begun=[]).look().get(DataTables)
    return None if isinstance(found, Unknown) else found.tables[0].rows


def _prompt(session: Session, seen: Facts, configuration: Configuration) -> int | None:
    """The longest prompt of the data, if this is the command whose data were read."""
    first = seen.get(Configuration)
    same = not isinstance(first, Unknown) and all(first.get(key) == configuration.get(key) for key in _DATA)
    return most_tokens(session.machine, seen, configuration) if same else None


def _write(session: Session, path: Path, content: bytes, script: Path, kind: Kind) -> None:
    """Write the variant, replacing an older one that was not edited. Raises UsageError."""
    change: Change = NewFile(path, content, stat.S_IMODE(script.stat().st_mode))
    try:
        existing = safe_write.read(path) if os.path.lexists(path) else None
    except apply.Refused as error:
        raise UsageError(str(error)) from None
    if existing is not None and existing != content:
        ours = {
            changed.path
            for recorded in history(session.target, session.machine).changes
            for changed in recorded.transaction.changes
            if changed.standing == "in place"
        }
        if str(path) not in ours:
            raise UsageError(
                f"{path} exists and was not written by verl-doctor, or was edited; move it, or name "
                "another file with --output"
            )
        change = ReplaceFile(path, existing, content)
    try:
        apply.apply([change], journal_home(session.target, links.places([change])), fix="script", code=kind)
    except apply.Refused as error:
        raise UsageError(str(error)) from None


def _change_lines(made: Made, *, deep: bool) -> Iterator[str]:
    """A sentence for each difference with its reason, and for what stays."""
    for job, recipe in zip(made.before.jobs, made.recipes, strict=True):
        if len(made.recipes) > 1:
            yield f"line {job.command.line}:"
        for change in recipe.changes:
            was = _shown(job.configuration.get(change.key))
            yield f"{change.key}: {was} -> {_shown(change.value)} ({change.why})"
        yield from recipe.kept
    for result, finding in made.after.report.findings():
        if finding.severity == "error":
            yield (
                f"{result.code}, as in the script itself: {finding.message}; see verl-doctor explain "
                f"{result.code}"
            )
    validation = next((result for result in made.after.report.results if result.code == _VALIDATED), None)
    if deep and validation is not None:
        yield (
            "verl itself "
            f"{'accepts it' if validation.status == 'pass' else f'did not validate it: {validation.reason}'}"
        )


def _shown(value: object) -> str:
    return "not known" if value is UNDETERMINED else as_written(value)


__all__ = ["script"]
