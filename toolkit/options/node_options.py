"""Options that name other nodes, and how long to wait for them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import click

from verl_doctor.toolkit.cluster.node_request import BUDGET, VIA, RequestedNodes, Via
from verl_doctor.toolkit.collectors.packages.installer_limit import APPLY, PLAN
from verl_doctor.toolkit.options.shared import Command, shared_option
from verl_doctor.toolkit.options.value_types import Duration, in_units
from verl_doctor.toolkit.target import UsageError

_HOST = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_][\w.:-]*")


def node_options(command: Command) -> Command:
    """Options that name other nodes; the command gets `nodes`, None if there are none."""
    return node_options_within(BUDGET)(command)


def repair_options(command: Command) -> Command:
    """Add the same with a `budget` that also limits the installers, None for their usual time."""
    return _node_options(BUDGET, command, for_installers=True)


def node_options_within(default_budget: float) -> Callable[[Command], Command]:
    """Add the same with a default for the seconds that nodes have."""
    return functools.partial(_node_options, default_budget)


def _node_options(default_budget: float, command: Command, *, for_installers: bool = False) -> Command:
    waiting = f"How long to wait for the nodes: 30s, 5m.  [default: {in_units(default_budget)}]"
    if for_installers:
        waiting = (
            "How long to wait for the nodes, and for an installer that resolves packages: 30s, 5m.  "
            f"[default: nodes {in_units(default_budget)}; installer {in_units(PLAN)}, with --apply "
            f"{in_units(APPLY)}]"
        )

    @shared_option(
        "--cluster",
        is_flag=True,
        help="Include all nodes of the Ray cluster, through a short Ray job.",
    )
    @shared_option(
        "--nodes",
        "hosts",
        metavar="HOSTS",
        help="Query these hosts, without Ray: node[001-004,007].",
    )
    @shared_option("--via", type=click.Choice(VIA), help=f"How --nodes are reached.  [default: {VIA[0]}]")
    @shared_option(
        "--budget",
        type=Duration("5s", "1d", bare=True),
        metavar="TIME",
        help=waiting,
    )
    @functools.wraps(command)
    def with_nodes(
        *, cluster: bool, hosts: str | None, via: Via | None, budget: float | None, **others: Any
    ) -> Any:
        named = () if hosts is None else _hosts(hosts)
        if for_installers:
            others["budget"] = budget
        if cluster and named:
            raise UsageError("choose either --cluster, for the nodes of Ray, or --nodes")
        if via and not named:
            raise UsageError("--via requires --nodes HOSTS")
        if not cluster and not named:
            if budget is not None and not for_installers:
                raise UsageError("--budget requires --cluster or --nodes HOSTS")
            return command(nodes=None, **others)
        return command(nodes=RequestedNodes(named, via or VIA[0], budget or default_budget), **others)

    return with_nodes


def _hosts(text: str) -> tuple[str, ...]:
    """Return the names in a list in Slurm's format.

    Raises UsageError if one is not a host name, or could be read as an option.
    """
    from verl_doctor.toolkit.system.node_names import expand  # noqa: PLC0415 - few runs name nodes

    try:
        hosts = tuple(dict.fromkeys(expand(text)))
    except ValueError as error:
        raise UsageError(f"--nodes {text}: {error}; for instance node[001-004,007]") from None
    if not hosts:
        raise UsageError("--nodes does not name a host; for instance node[001-004,007]")
    if strange := next((host for host in hosts if not _HOST.fullmatch(host)), None):
        raise UsageError(f"--nodes {text}: '{strange}' is not a host name; for instance node[001-004,007]")
    return hosts
