"""`verl-doctor warmup`: read and compile in advance what a job needs at its start."""

from __future__ import annotations

import functools
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.console.streams import nothing_on_stdout
from verl_doctor.toolkit.console.view import show
from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.discovery import discover
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.options.node_options import node_options_within
from verl_doctor.toolkit.options.shared import refuses
from verl_doctor.toolkit.options.target_options import job_options, target_options
from verl_doctor.toolkit.options.value_types import OTHER_TREES, PATH, Size
from verl_doctor.toolkit.options.view_options import answer_options
from verl_doctor.toolkit.target import Options, UsageError

if TYPE_CHECKING:
    from verl_doctor.toolkit.commands.warmup.warmup import EngineCaches, Node
    from verl_doctor.toolkit.result import Repair
    from verl_doctor.toolkit.warm.named import Look

_PARTS = ("files", "bytecode")
_LONGEST = 1800.0  # seconds for all nodes together
_AT_ONCE = 8  # nodes that read from one shared file system
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


class Ranks(click.ParamType):  # type: ignore[type-arg]  # generic only in newer click
    """Numbers of ranks: 0-7,12."""

    name = "ranks"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[int]:
        """Each of them."""
        if isinstance(value, frozenset):
            return value
        ranks: set[int] = set()
        for part in str(value).split(","):
            found = _RANGE.fullmatch(part)
            if not found or int(found[2] or found[1]) < int(found[1]):
                self.fail(f"'{value}' does not name ranks; for instance 0-7 or 0,4", param, ctx)
            ranks.update(range(int(found[1]), int(found[2] or found[1]) + 1))
        return frozenset(ranks)


@refuses(
    *OTHER_TREES,
    why="warmup reads and starts what the interpreter imports; name a tree's files with --path",
)
@click.command(
    epilog=(
        "Exit codes: 0 everything named is resident, 1 something is not, 2 wrong usage, 3 could not be "
        "determined."
    )
)
@target_options
@job_options
@node_options_within(_LONGEST)
@click.option(
    "--path",
    "paths",
    type=PATH,
    metavar="PATH",
    multiple=True,
    help="Also read this file, or all files below this folder; may be repeated.",
)
@click.option(
    "--bytecode",
    "compiles",
    is_flag=True,
    help="Also compile installed packages without bytecode caches; undo removes them.",
)
@click.option("--only", type=click.Choice(_PARTS), hidden=True, help="COMPATIBILITY: of 0.1.0.")
@click.option(
    "--limit",
    type=Size(),
    metavar="SIZE",
    help="Keep at most this much resident: 40G. Never more than memory and control groups allow.",
)
@click.option(
    "--ranks",
    type=Ranks(),
    metavar="RANKS",
    default=frozenset(),
    help="Of files named after ranks (sharded_state, checkpoints), read only these ranks: 0-7.",
)
@click.option(
    "--at-once",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    default=_AT_ONCE,
    show_default=True,
    help="With --cluster or --nodes: how many nodes may read from one shared file system at a time.",
)
@click.option(
    "--engine",
    is_flag=True,
    help=(
        "On GPUs, also start vLLM once as the job would, to fill its compile caches. Takes minutes, and "
        "uses the GPUs."
    ),
)
@click.option("--dry-run", is_flag=True, help="Only show what would be read, and what is resident.")
@answer_options
def warmup(
    *,
    options: Options,
    nodes: RequestedNodes | None,
    paths: tuple[Path, ...],
    compiles: bool,
    only: str | None,
    limit: int | None,
    ranks: frozenset[int],
    at_once: int,
    engine: bool,
    dry_run: bool,
    form: str,
    file: Path | None,
) -> int:
    """Read a job's files into memory before it starts.

    Reads the weights and data that the launch script or the options name into the page cache. Compiles
    nothing without --bytecode or --engine. Ctrl-C ends it; the next run continues from there.
    """
    from verl_doctor.toolkit.commands.warmup.answer import WarmupAnswer  # noqa: PLC0415
    from verl_doctor.toolkit.commands.warmup.render import shown  # noqa: PLC0415
    from verl_doctor.toolkit.commands.warmup.warmup import HERE, NAME_ONE, Node, Warmup  # noqa: PLC0415
    from verl_doctor.toolkit.warm import named as warm_named  # noqa: PLC0415 - only this command needs it
    from verl_doctor.toolkit.warm.ending import Ending  # noqa: PLC0415
    from verl_doctor.toolkit.warm.request import warmed  # noqa: PLC0415

    if engine and nodes is not None:
        raise UsageError("--engine works on this machine only: remove the options that name nodes")
    if options.ray_address and (nodes is None or nodes.hosts):
        raise UsageError("--ray-address requires --cluster")
    begun = time.monotonic()
    with nothing_on_stdout():
        machine = Machine()
        target = discover(options, machine)
        look = functools.cache(functools.partial(_look, options))
        named = tuple(map(str, paths)) if nodes else warm_named.demand_there(paths, machine)
        warm_request = None if only == "bytecode" else warm_named.request(target, look, named)
        compiles = compiles or only == "bytecode"
        if warm_request is None and not compiles and not engine:
            raise UsageError(f"nothing to read: {NAME_ONE}")
        found: tuple[Node, ...] = ()
        if warm_request is not None:
            warm_request = replace(warm_request, ranks=tuple(sorted(ranks)), limit=limit, dry_run=dry_run)
        if warm_request is not None and nodes is not None:
            from verl_doctor.toolkit.commands.warmup import cluster  # noqa: PLC0415 - few runs are of many nodes

            found = cluster.warm_nodes(nodes, *look(), warm_request, at_once)
        elif warm_request is not None:
            ending = Ending()
            with ending.at_signals():
                found = (Node(HERE, warmed(machine, warm_request, ending, shown)),)
        written = _bytecode(look, dry_run=dry_run) if compiles and not _ended(found) else None
        compiled = None
        if engine and not _ended(found):
            compiled = _kernels(look, warm_request.model if warm_request else "", dry_run=dry_run)
    done = Warmup(found, (written,) if written else (), compiled, dry_run, time.monotonic() - begun)
    return show(WarmupAnswer(done), form, file)


def _look(options: Options) -> tuple[Session, Collection]:
    run = open_session(options)
    return run, run.look()


def _ended(found: tuple[Node, ...]) -> bool:
    """Whether the user wanted the end."""
    return any(node.pages is not None and node.pages.ended for node in found)


def _bytecode(look: Look, *, dry_run: bool) -> Repair | None:
    from verl_doctor.toolkit.commands.warmup import bytecode  # noqa: PLC0415 - it brings the change engine

    return bytecode.write_missing(*look(), dry_run=dry_run)


def _kernels(look: Look, model: str, *, dry_run: bool) -> EngineCaches:
    from verl_doctor.toolkit.commands.warmup import engine as warmup_engine  # noqa: PLC0415 - few runs start an engine

    run, collection = look()
    return warmup_engine.compile_kernels(run.machine, collection, model, dry_run=dry_run)
