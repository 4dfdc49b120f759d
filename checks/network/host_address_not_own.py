"""NET106: VLLM_HOST_IP is not an address of this machine, or several nodes have the same one."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.network._interfaces import has_gpus
from verl_doctor.checks.network._network_places import places
from verl_doctor.checks.shared.network_examples import (
    DOCKER0,
    ETH0,
    GPUS,
    LO,
    NO_GPUS,
    ONE,
    TWO,
    machine,
    script,
    shell,
)
from verl_doctor.toolkit.collectors.connections.network_variables import HOST_ADDRESS, NetworkVariables
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.network.network import Network, is_address
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_HERE = machine(LO, ETH0, DOCKER0)


def _examples() -> list[Example]:
    return [
        Example("this machine's address", (_HERE, ONE, GPUS, *shell(VLLM_HOST_IP="10.0.0.5"))),
        Example("not set", (_HERE, TWO, GPUS, *shell())),
        Example("the engines run elsewhere", (_HERE, TWO, NO_GPUS, *shell(VLLM_HOST_IP="10.0.0.9"))),
        Example("a host name: vLLM resolves it", (_HERE, ONE, GPUS, *shell(VLLM_HOST_IP="node1"))),
        Example(
            "an address of the previous machine",
            (_HERE, ONE, GPUS, *shell(VLLM_HOST_IP="10.0.0.77")),
            "no interface of this machine has it",
        ),
        Example(
            "loopback, and several nodes",
            (_HERE, TWO, GPUS, *shell(VLLM_HOST_IP="127.0.0.1")),
            "it is a loopback address",
        ),
        Example(
            "one address for all nodes",
            (_HERE, TWO, GPUS, *script("VLLM_HOST_IP", "10.0.0.5", workers=True)),
            "the workers of all nodes receive it",
        ),
    ]


@check("NET106", phase="ray", examples=_examples)
def host_address_not_own(
    network: Network,
    nodes: JobNodes,
    resources: Resources | Unknown,
    variables: NetworkVariables,
) -> Iterator[Finding]:
    """VLLM_HOST_IP is not an address of this machine, or several nodes have the same one.

    ## Why it matters

    vLLM uses it as its node's address without checking: its processes listen on it and advertise it to each
    other. They cannot listen on an address that the machine does not have, and if several nodes share one
    address, vLLM stops with `Every node should have a unique IP address`.

    ## How to fix

    Remove the variable: vLLM finds the address from its route. If it must be set, set it on each node before
    Ray starts, never in a `runtime_env`.
    """
    everywhere = {given.value for given in variables.of(HOST_ADDRESS) if given.everywhere}
    for place in places(HOST_ADDRESS, variables):
        value = place.value or ""
        owner = network.owner_of(value)
        if not is_address(value):
            continue
        if nodes.several and value in everywhere:
            why = "the workers of all nodes receive it, but each node needs its own"
        elif owner is None and has_gpus(resources):
            why = "no interface of this machine has it"
        elif owner is not None and owner.kind == "loopback" and nodes.several:
            why = "it is a loopback address, and the job spans several nodes"
        else:
            continue
        own = [
            address
            for each in network.interfaces
            if each.name == nodes.interface
            for address in each.addresses[:1]
        ]
        yield Finding(
            f"{place.assignment}: {why}",
            Evidence(
                f"{place.assignment} in {place.where}",
                " or ".join(own) or "an address of this machine",
                "the kernel's list of interfaces",
            ),
            location=place.location,
            remedy=f"remove {HOST_ADDRESS}: vLLM finds the address itself",
            fix="host-address" if place.location is None else None,
            subject=Subject("variable", HOST_ADDRESS),
        )
