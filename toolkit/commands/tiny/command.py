"""`verl-doctor tiny DIR`: tiny data and a tiny random model, for trials."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.commands.tiny import render
from verl_doctor.toolkit.console import output
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import width_of
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.exit_code import ExitCode
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.options.shared import shared_option
from verl_doctor.toolkit.options.value_types import PATH, NamedPath
from verl_doctor.toolkit.target import Options, UsageError
from verl_doctor.toolkit.text import harmless
from verl_doctor.toolkit.tiny.rows import KINDS, Kind
from verl_doctor.toolkit.tiny.shape import SHAPES
from verl_doctor.toolkit.tiny.tiny import Tiny, make, names_in

_NOT_MADE = ExitCode.COULD_NOT_CHECK
_MOST_ROWS = 10_000


class FolderToFill(NamedPath):
    """A folder that is missing or empty; one that cannot be made is refused before anything is done."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The folder itself, where links lead to."""
        named = super().convert(value, param, ctx)
        path = Path(os.path.realpath(named))
        try:
            first = next(names_in(path), None)
        except FileNotFoundError:
            first, why = None, output.why_not_new(path)
        except NotADirectoryError:
            self.fail(f"{named} is not a folder; name a new one", param, ctx)
        except OSError as error:
            self.fail(f"{named} cannot be read: {error.strerror}; name a new folder", param, ctx)
        else:
            why = output.why_not_new(path / "model")
        if first is not None:
            self.fail(f"{named} is not empty (it contains {first}); name a new folder", param, ctx)
        if why:
            self.fail(f"{named} cannot be created: {why}; name another folder", param, ctx)
        return path


@click.command(epilog="Exit codes: 0 written, 2 wrong usage, 3 the files could not be made.")
@click.argument("folder", metavar="DIR", type=FolderToFill(path_type=Path))
@shared_option("--python", type=PATH, metavar="PATH", help="The interpreter that will load them.")
@shared_option("--verl", type=PATH, metavar="DIR", help="The verl tree that will read the data.")
@click.option(
    "--model-shape",
    "shape",
    type=click.Choice([*SHAPES]),
    help="The model's shape.  [default: qwen2; qwen2.5-vl for images]",
)
@click.option(
    "--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="The kind of rows."
)
@click.option(
    "--rows",
    type=click.IntRange(1, _MOST_ROWS),
    default=2,
    show_default=True,
    metavar="N",
    help="How many rows each file has.",
)
def tiny(
    *, folder: Path, python: Path | None, verl: Path | None, shape: str | None, kind: Kind, rows: int
) -> int:
    """Write tiny data and a tiny random model.

    The tables have the columns that the installed verl reads; vLLM and transformers can load the model. It
    takes a second, needs no network, and always writes the same bytes.
    """
    chosen = shape or ("qwen2.5-vl" if kind == "image" else "qwen2")
    if kind == "image" and not SHAPES[chosen]().sees:
        raise UsageError(f"--kind image: {chosen} does not accept images; remove --model-shape")
    with nothing_on_stdout(), Progress() as progress:
        progress.show(f"writing {folder}")
        run = open_session(Options(python=python, verl=verl))
        made = _make(run, folder, chosen, kind, rows)
    if isinstance(made, Unknown):
        print(f"verl-doctor: {harmless(made.reason)}", file=sys.stderr)
        return _NOT_MADE
    width = width_of(sys.stdout)
    print("\n".join(harmless(line) for line in render.lines(made, width, run.target.arguments)))
    return ExitCode.OK


def _make(run: Session, folder: Path, shape: str, kind: Kind, rows: int) -> Tiny | Unknown:
    collection = run.look()
    interpreter = collection.get(Interpreter)
    if isinstance(interpreter, Unknown):
        return interpreter
    trees = collection.get(VerlTrees)
    verl = Path(trees.imported.folder) if isinstance(trees, VerlTrees) else None
    return make(run.machine, interpreter, folder, shape=shape, kind=kind, rows=rows, verl=verl)
