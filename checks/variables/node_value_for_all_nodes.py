"""ENV113: the runtime_env gives every node a value that is meant for one node."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.effective import PER_NODE, decided_at, own, row, value_text
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_GIVEN = row("NCCL_SOCKET_IFNAME", None, None, "eth0", "the runtime_env", path="/home/me/env.yaml", line=4)
_ADDRESS = "VLLM_HOST_IP"


def _examples() -> list[Example]:
    return [
        Example("one node", (own(_GIVEN), JobNodes(1))),
        Example(
            "each node has it from its own shell",
            (own(row("NCCL_SOCKET_IFNAME", "eth0", "eth0", "eth0", "the raylet")), JobNodes(2)),
        ),
        Example("a list that fits all nodes", (own(_GIVEN), JobNodes(2)), "all 2 nodes"),
        Example(
            "an address of one node",
            (own(row(_ADDRESS, None, None, "10.0.0.1", "the runtime_env")), JobNodes(4)),
            "all 4 nodes",
        ),
    ]


@check("ENV113", severity="info", examples=_examples)
def node_value_for_all_nodes(environment: EffectiveEnvironment, nodes: JobNodes) -> Iterator[Finding]:
    """The runtime_env gives every node a value that is meant for one node.

    ## Why it matters

    A `runtime_env` is the same on every node. Network interfaces and adapters may have other names on the
    next node, and addresses always differ: with a single `VLLM_HOST_IP`, every node announces itself under
    the address of the first.

    ## How to fix

    Set such variables in the environment of each node, before `ray start`. If all nodes are alike, nothing
    needs to be done, except for addresses.
    """
    if nodes.nodes is None or nodes.nodes < 2:
        return
    for variable in environment.rows:
        if variable.name in PER_NODE and variable.decided_by == "the runtime_env" and variable.worker.is_set:
            yield Finding(
                (
                    f"the runtime_env gives all {nodes.nodes} nodes "
                    f"{variable.name}={value_text(variable.worker)}"
                ),
                Evidence(
                    value_text(variable.worker),
                    "the value of each node, from its own environment",
                    str(decided_at(variable) or ""),
                ),
                subject=Subject("variable", variable.name),
                location=decided_at(variable),
                remedy="set it on each node before ray start",
                severity="warning" if variable.name == _ADDRESS else None,
            )
