"""`verl-doctor watch`: what will run out first while a job runs, and when."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import click

from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.options.shared import refuses
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import OTHER_TREES, PATH, Duration
from verl_doctor.toolkit.options.view_options import answer_options
from verl_doctor.toolkit.process.signals import taken
from verl_doctor.toolkit.system.file_systems import space_of
from verl_doctor.toolkit.target import Options, UsageError

_MOMENT = 0.1  # seconds, after which a signal is noticed
_SHORTEST = "1s"  # between two samples, each of which takes about a tenth of that
_ON_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE


class _Clock:
    """The machine's clock, until Ctrl-C or SIGTERM ends the watch; then the samples are summarised."""

    def __init__(self) -> None:
        self._over = False

    def until_signalled(self) -> contextlib.AbstractContextManager[None]:
        """Take both signals as that wish."""
        return taken((signal.SIGINT, signal.SIGTERM), self._end)

    def _end(self, _: signal.Signals) -> None:
        # No threading.Event: the handler would wait for the lock that the interrupted `wait` holds.
        self._over = True

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not self._over and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _MOMENT))
        return not self._over


@refuses(
    "--ray-address",
    why="watch examines only this machine: remove it, and run watch on the node in question",
)
@refuses(
    *OTHER_TREES, "--model", "--data", why="watch examines disks and memory; name another folder with --path"
)
@click.command(
    epilog="Exit codes: 0 nothing runs out, 1 something has run out or will within --within, 2 wrong usage, "
    "3 fewer than two minutes or twenty samples."
)
@target_options
@job_options
@click.option(
    "--every",
    type=Duration(least=_SHORTEST),
    default="5s",
    show_default=True,
    metavar="TIME",
    help="The time between two samples.",
)
@click.option(
    "--for",
    "until",
    type=Duration(),
    default="10m",
    show_default=True,
    metavar="TIME",
    help="How long to watch; Ctrl-C ends it earlier.",
)
@click.option(
    "--within",
    type=Duration(),
    default="1d",
    show_default=True,
    metavar="TIME",
    help="What runs out later than this is not a failure.",
)
@click.option(
    "--path",
    "paths",
    type=PATH,
    metavar="DIR",
    multiple=True,
    help="Also watch this folder's disk, for instance that of the checkpoints.",
)
@answer_options
def watch(
    *,
    options: Options,
    every: float,
    until: float,
    within: float,
    paths: tuple[Path, ...],
    form: str,
    file: Path | None,
) -> int:
    """Watch disks and memory: what will run out first, and when.

    The disks of Ray's sessions and of temporary files, /dev/shm, the memory of this machine and of its GPUs,
    and threads: each is compared with the point where Ray, the kernel or CUDA stops the job. Prints a line
    for each sample on stderr, and the summary on stdout.
    """
    from verl_doctor.toolkit.commands.watch import render  # noqa: PLC0415 - only this command needs them
    from verl_doctor.toolkit.commands.watch.answer import WatchAnswer  # noqa: PLC0415
    from verl_doctor.toolkit.commands.watch.watch import History, stores_of  # noqa: PLC0415
    from verl_doctor.toolkit.commands.watch.watch import watch as looks  # noqa: PLC0415

    if (
        until
        and every > until
        and click.get_current_context().get_parameter_source("every") is _ON_COMMAND_LINE
    ):
        raise UsageError(
            "--every is longer than --for, and one sample shows no growth; shorten it, or pass --for 0s "
            "for a single sample"
        )
    with nothing_on_stdout():
        run = open_session(options)
        named = tuple(_disk(run.machine, path) for path in paths)
        clock = _Clock()
        begun, history = clock.now(), History()
        with clock.until_signalled():
            for history in looks(
                lambda: stores_of(run.look(), run.machine, named),
                clock,
                every=every,
                until=until,
            ):
                print(render.line(time.strftime("%H:%M:%S"), history.forecasts()), file=sys.stderr)
    found = history.forecasts()
    seconds = clock.now() - begun
    return show(WatchAnswer(found, history.looks, seconds, within), form, file)


def _disk(machine: Machine, named: Path) -> Path:
    """What --path names.

    Raises UsageError when it is not there, or when what it lies on has no size that could be taken.
    """
    path = machine.cwd / named
    if not os.path.exists(machine.at(str(path))):
        existing = next(above for above in path.parents if os.path.exists(machine.at(str(above))))
        raise UsageError(f"--path {path} does not exist; create it, or name an existing folder: {existing}")
    space = space_of(machine.at(str(path)))
    if space is None or not space.size:
        raise UsageError(f"--path {path}: its file system does not report its size; name a folder on a disk")
    return path
