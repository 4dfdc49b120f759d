"""The list of exceptions that the fix of NET113 writes."""

from __future__ import annotations

from dataclasses import replace

from verl_doctor.checks.nodes.proxy_between_nodes import proxy_between_nodes
from verl_doctor.checks.shared.network_examples import ONE, TWO
from verl_doctor.patches.variables.no_proxy_between_nodes import no_proxy_between_nodes
from verl_doctor.toolkit.change import Change, Refusal, SetVariable
from verl_doctor.toolkit.collectors.connections.proxied import Client, Proxied
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes

HOSTS = ("10.0.0.5", "127.0.0.1", "localhost")
LISTS = {"no_proxy": "10.0.0.0/8, .internal", "NO_PROXY": "localhost"}
SEEN = Proxied(HOSTS, ("http_proxy",), LISTS, (Client("httpx", HOSTS[:2]),))


def plan(proxied: Proxied, nodes: JobNodes) -> list[Change] | Refusal:
    (finding,) = proxy_between_nodes.judge(proxied)
    assert finding.fix == no_proxy_between_nodes.id
    return no_proxy_between_nodes.plan(finding, proxied, nodes)


def test_both_spellings_are_extended() -> None:
    changes = plan(SEEN, ONE)
    assert isinstance(changes, list)
    found = {
        change.name: (change.value, change.node_only) for change in changes if isinstance(change, SetVariable)
    }
    value = "10.0.0.0/8,.internal,localhost,10.0.0.5,127.0.0.1"
    assert found == {"no_proxy": (value, False), "NO_PROXY": (value, False)}


def test_list_is_node_specific_with_several_nodes() -> None:
    changes = plan(SEEN, TWO)
    assert isinstance(changes, list)
    assert all(isinstance(change, SetVariable) and change.node_only for change in changes)


def test_list_set_in_a_script_is_refused_with_its_line() -> None:
    refused = plan(replace(SEEN, path="run.sh", line=3), ONE)
    assert isinstance(refused, Refusal)
    assert refused.reason.startswith("run.sh:3 sets the list; change it there to 10.0.0.0/8,.internal,")
