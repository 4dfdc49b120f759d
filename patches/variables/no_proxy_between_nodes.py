"""Fix for NET113: exempt the job's own addresses from the proxy."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.connections.proxied import Proxied
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.rule import Finding


@fix("no-proxy-between-nodes", repairs="NET113", safety="safe", restart="Ray, on this node")
def no_proxy_between_nodes(_: Finding, proxied: Proxied, nodes: JobNodes) -> list[Change] | Refusal:
    """Exempt the job's own addresses from the proxy, in both spellings of the variable.

    Keep existing exemptions.

    With several nodes, the variable is for this node only: others have other addresses.
    """
    words = [word.strip() for value in proxied.no_proxy.values() for word in value.split(",") if word.strip()]
    value = ",".join(dict.fromkeys((*words, *proxied.hosts)))
    if proxied.path:
        return Refusal(f"{proxied.path}:{proxied.line} sets the list; change it there to {value}")
    why = (
        "without it the job's HTTP clients send requests to its own servers through the proxy; httpx "
        "accepts only single addresses"
    )
    return [SetVariable(name, value, why, node_only=bool(nodes.several)) for name in ("no_proxy", "NO_PROXY")]
