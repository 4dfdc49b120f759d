"""The nodes of a cluster in a report: healthy nodes are counted, the others are named."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.result import NodeGroup, Nodes
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.system.node_names import expand, shortened
from verl_doctor.toolkit.text import counted


def lines(nodes: Nodes) -> Iterator[str]:
    """Yield which nodes responded, their kinds if several, and which did not respond, one item a line."""
    differ = nodes.answered - nodes.agree
    parts = [f"{counted(nodes.agree, 'node')} {'agrees' if nodes.agree == 1 else 'agree'}"]
    parts += [f"{differ:,} {'differs' if differ == 1 else 'differ'} from most"] if differ else []
    parts += [f"{nodes.lost:,} did not respond"] if nodes.lost else []
    yield "; ".join(parts)
    if len(nodes.kinds) > 1:
        yield "; ".join(_kind(group) for group in nodes.kinds)
    for group in nodes.missing:
        yield f"no response from {named(group)}: {group.what}"


def of(finding: Finding, *, verbose: bool = False) -> str:
    """Return the nodes of a finding, all of them with `verbose`."""
    nodes = finding.node or ""
    return nodes if verbose or not nodes else shortened(nodes, len(expand(nodes)))


def named(group: NodeGroup) -> str:
    """Return the nodes of a group, as many as fit on a line."""
    return shortened(group.nodes, group.count) if group.nodes else f"{counted(group.count, 'node')}"


def _kind(group: NodeGroup) -> str:
    gpus = f"with {group.what}" if group.what else "without a GPU"
    where = f" ({shortened(group.nodes, group.count)})" if group.nodes else ""
    return f"{counted(group.count, 'node')} {gpus}{where}"
