"""Options that name what is examined: the environment, source trees and the job."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from verl_doctor.toolkit.options import completing, hints
from verl_doctor.toolkit.options.shared import Command, shared_option
from verl_doctor.toolkit.options.value_types import ELSEWHERE, PATH, TREES, NamedTree
from verl_doctor.toolkit.system.silent_path import why_silent
from verl_doctor.toolkit.target import LIBRARIES, Options, UsageError


def target_options(command: Command) -> Command:
    """Options that name what is examined; the command gets `options`."""

    @shared_option(
        "--python",
        type=PATH,
        metavar="PATH",
        help="The interpreter to examine, or the folder of its environment.",
    )
    @shared_option(
        "--verl", type=PATH, metavar="DIR", help="The verl tree: a checkout or the package folder."
    )
    @shared_option(
        "--tree",
        "trees",
        type=NamedTree(),
        multiple=True,
        metavar="NAME=DIR",
        help=(
            f"Use this source tree of {', '.join(TREES[:-1])} or {TREES[-1]}, installed or not. May be "
            "repeated."
        ),
    )
    @functools.wraps(command)
    def with_options(
        *, python: Path | None, verl: Path | None, trees: tuple[tuple[str, Path], ...], **others: Any
    ) -> Any:
        old = [(name, tree) for name in TREES if (tree := others.pop(name)) is not None]
        for name, tree in old:
            hints.replaced(f"--{name} {tree}", f"--tree {name}={tree}")
        named = dict([*old, *trees])
        libraries = tuple((name, named[name]) for name in LIBRARIES if name in named)
        return command(options=Options(python, verl, named.get("vllm"), libraries), **others)

    for name in reversed(TREES):
        with_options = click.option(f"--{name}", type=PATH, hidden=True)(with_options)
    return with_options


def job_options(command: Command) -> Command:
    """The launch script or command of the job, added to the `options` of `target_options`.

    `target_options` must be applied after this.
    """
    launch = click.argument(
        "launch",
        nargs=-1,
        metavar="[LAUNCH_SCRIPT | -- COMMAND...]",
        shell_complete=completing.complete_files,
    )
    return launch(_job(command))


def script_options(command: Command) -> Command:
    """Add the same for a command with other arguments: the launch script is an option."""
    script = click.option(
        "--script",
        "launch",
        multiple=True,
        metavar="FILE",
        shell_complete=completing.complete_files,
        help="The script that starts the job; may be repeated.",
    )
    return script(_job(command))


def _job(command: Command) -> Command:
    @shared_option("--model", type=PATH, metavar="DIR", help="The model's folder.")
    @shared_option("--data", type=PATH, metavar="FILE", multiple=True, help="A data file; may be repeated.")
    @shared_option(
        "--ray-address",
        default="",
        metavar="HOST:PORT",
        help="Examine the Ray cluster whose head (GCS) has this address.",
    )
    @functools.wraps(command)
    def with_job(
        *,
        options: Options,
        launch: tuple[str, ...],
        model: Path | None,
        data: tuple[Path, ...],
        ray_address: str,
        **others: Any,
    ) -> Any:
        for word in launch:
            if why := why_silent(word):
                raise UsageError(f"{word}: {why}; {ELSEWHERE}")
        named = replace(
            options,
            launch=launch,
            model=model,
            data=data,
            ray_address=ray_address,
        )
        return command(options=named, **others)

    return with_job
