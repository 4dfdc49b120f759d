"""NET118: Ray's address on this node cannot be reached by other nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.network._interfaces import leads_nowhere
from verl_doctor.checks.shared.network_examples import DOCKER0, ETH0, LO, ONE, TWO, machine
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.collectors.network.network import Network, is_address
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes, RayHere, option
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_HERE = machine(LO, ETH0, DOCKER0)
_NO_SCRIPT = (Launch, Absent("none was named"))
_OPTION = "--node-ip-address"


def _runs(nodes: JobNodes, address: str) -> JobNodes:
    return replace(nodes, rays=(RayHere(pid=77, address=address),))


def _starts(address: str) -> Launch:
    return Launch(
        (),
        ray_starts=(
            (
                Word(text="--head", path="run.sh", line=4),
                Word(text=f"{_OPTION}={address}", path="run.sh", line=4),
            ),
        ),
    )


def _examples() -> list[Example]:
    return [
        Example("an address of this machine", (_HERE, _runs(TWO, "10.0.0.5"), _starts("10.0.0.5"))),
        Example("one node: loopback works", (_HERE, _runs(ONE, "127.0.0.1"), _NO_SCRIPT)),
        Example(
            "a job without Ray",
            (_HERE, _runs(ONE, "10.0.0.77"), _NO_SCRIPT, EffectiveEnvironment(rows=(), uses_ray=False)),
        ),
        Example("a script for other machines", (_HERE, TWO, _starts("10.0.0.1"))),
        Example(
            "the machine's address has changed",
            (_HERE, _runs(ONE, "10.0.0.77"), _NO_SCRIPT),
            "no interface of this machine has it any longer",
        ),
        Example(
            "loopback, and several nodes", (_HERE, _runs(TWO, "127.0.0.1"), _NO_SCRIPT), "loopback interface"
        ),
        Example("docker's bridge", (_HERE, _runs(TWO, "172.17.0.1"), _NO_SCRIPT), "a bridge interface"),
        Example(
            "what hostname -I prints",
            (_HERE, TWO, _starts("10.0.0.5 172.17.0.1")),
            "it is not a single address",
        ),
        Example("loopback in a script", (_HERE, TWO, _starts("127.0.0.1")), "loopback interface"),
    ]


def _irrelevant(environment: EffectiveEnvironment | Unknown) -> str | None:
    if isinstance(environment, Unknown) or environment.uses_ray:
        return None
    return "the job starts no Ray"


@check("NET118", phase="ray", applies=_irrelevant, examples=_examples)
def ray_address_not_own(network: Network, nodes: JobNodes, launch: Launch | Unknown) -> Iterator[Finding]:
    """Ray's address on this node cannot be reached by other nodes.

    ## Why it matters

    Ray advertises each node's address to all others when it starts, and keeps it. If the machine's address
    has changed since, or Ray was started with loopback or a container bridge's address, actors on the node
    cannot be called. On machines with several interfaces `hostname -I` and `hostname --ip-address` print
    several addresses, which Ray reads as one long name.

    ## How to fix

    Run `ray stop`, then start Ray with `--node-ip-address=` and the address that the other nodes reach, or
    without that option: Ray then uses the address from which it reaches the head.
    """
    for raylet in nodes.rays:
        owner = network.owner_of(raylet.address)
        if not is_address(raylet.address):
            continue
        if owner is None:
            why = "no interface of this machine has it any longer"
        else:
            nowhere = leads_nowhere(owner, raylet.address, nodes) if nodes.several else ""
            why = f"{owner.name} is {nowhere}" if nowhere else ""
        if why:
            yield Finding(
                f"the raylet (pid {raylet.pid}) runs with the address {raylet.address}: {why}",
                Evidence(raylet.address, _good(network, nodes), f"/proc/{raylet.pid}/cmdline"),
                subject=Subject("address", raylet.address),
                remedy=f"run ray stop, then ray start with {_OPTION}={_good(network, nodes)}",
            )
    for words in () if isinstance(launch, Unknown) else launch.ray_starts:
        word = option(words, _OPTION)
        if word is not None and word.text and (why := _wrong(word, network, nodes)):
            yield Finding(
                f"ray start {_OPTION}={word.text}: {why}",
                Evidence(word.text, _good(network, nodes), word.path),
                subject=Subject("address", word.text, _OPTION),
                location=Location(word.path, word.line),
                remedy=f"give one address, {_good(network, nodes)} on this machine, or remove the option",
            )


def _wrong(word: Word, network: Network, nodes: JobNodes) -> str:
    """What is wrong with the address in a script, where another machine's address may be correct."""
    text = word.text or ""
    if len(text.split()) > 1:
        return "it is not a single address"
    owner = network.owner_of(text)
    nowhere = leads_nowhere(owner, text, nodes) if owner is not None and nodes.several else ""
    return f"{owner.name} is {nowhere}" if owner is not None and nowhere else ""


def _good(network: Network, nodes: JobNodes) -> str:
    """The address that the other nodes reach, if known."""
    interface = network.interface(nodes.interface)
    return interface.addresses[0] if interface and interface.addresses else "an address of this machine"
