"""The job's own addresses that the installed HTTP clients report they would reach through a proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.network.network import Network
from verl_doctor.toolkit.collectors.ray.job_nodes import JobNodes
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import proxied as proxied_probe
from verl_doctor.toolkit.system.child import ending, run_probe

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_NAMES = tuple(spelled for name in (*_PROXIES, "no_proxy") for spelled in (name, name.upper()))
_LIMIT = 8.0  # seconds
_LOCAL = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Client:
    """An HTTP client: the hosts it reaches through a proxy, or why it cannot work with these variables."""

    name: str
    proxied: tuple[str, ...] = ()
    failed: str = ""


@dataclass(frozen=True)
class Proxied:
    """The addresses that the job itself uses (`hosts`), and which clients reach them through a proxy.

    `no_proxy` is what the clients were given, by name. `named_by` are the variables that name a proxy; their
    values are not kept. `path` and `line` are where a launch file sets the list of exceptions, "" and 0 if
    the shell sets it or it is unset.
    """

    hosts: tuple[str, ...]
    named_by: tuple[str, ...]
    no_proxy: Mapping[str, str] = field(default_factory=dict)
    clients: tuple[Client, ...] = ()
    path: str = ""
    line: int = 0


@collector(timeout=12)
def proxied(
    machine: Machine,
    interpreter: Interpreter,
    network: Network,
    nodes: JobNodes,
    job: JobVariables,
) -> Proxied | Unknown:
    """Query the clients in a child of the target's interpreter if a variable names a proxy."""
    given = _given(job)
    named_by = tuple(name for name in given if name.lower() in _PROXIES)
    if not named_by:
        return Absent("no variable names a proxy")
    undetermined = next((name for name, value in given.items() if value is None), "")
    if undetermined:
        return Unknown(f"the value of {undetermined} in the launch script cannot be determined by reading it")
    hosts = _hosts(network, nodes)
    reported = _query(
        machine, interpreter.executable, {k: v for k, v in given.items() if v is not None}, hosts
    )
    if isinstance(reported, Unknown):
        return reported
    exceptions = {name: value for name, value in given.items() if _is_list(name) and value is not None}
    path, line = next((job.places[name] for name in exceptions if name in job.places), ("", 0))
    return Proxied(hosts, named_by, exceptions, tuple(_clients(reported, hosts)), path, line)


def _given(job: JobVariables) -> dict[str, str | None]:
    """Return the variables that are set.

    Only the scheme of a proxy is kept, "http" if its value is unknown; None: an unknown list.
    """
    found = {name: None if name in job.undetermined else job.get(name) for name in _NAMES if job.has(name)}
    return {
        name: value if _is_list(name) else f"{_scheme(value or '')}://proxy.invalid:3128"
        for name, value in found.items()
        if value != ""
    }


def _is_list(name: str) -> bool:
    """Return whether the variable holds the exceptions rather than a proxy."""
    return name.lower() == "no_proxy"


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    return scheme if separator else "http"


def _hosts(network: Network, nodes: JobNodes) -> tuple[str, ...]:
    """This machine and the heads, under the names that a job's processes use."""
    own = [
        each.addresses[0] for each in network.interfaces if each.name == nodes.interface and each.addresses
    ]
    heads = [head.address or head.host for head in nodes.heads]
    return tuple(dict.fromkeys((*own, *heads, *_LOCAL)))


def _url(host: str) -> str:
    return f"http://[{host}]:8000/" if ":" in host else f"http://{host}:8000/"


def _query(
    machine: Machine, python: str, variables: Mapping[str, str], hosts: tuple[str, ...]
) -> dict[str, Any] | Unknown:
    question = json.dumps({"variables": variables, "urls": [_url(host) for host in hosts]})
    result = run_probe(machine, python, proxied_probe, question, timeout=_LIMIT)
    if isinstance(result, Unknown):
        return result
    output, reported = result
    if not isinstance(reported, dict):
        return Unknown(f"the HTTP clients could not be queried about proxies: {ending(output, _LIMIT)}")
    return reported


def _clients(reported: Mapping[str, Any], hosts: tuple[str, ...]) -> Iterator[Client]:
    """Yield the installed clients."""
    for name, output in reported.items():
        if output:
            urls = output.get("proxied", ())
            through = tuple(host for host in hosts if _url(host) in urls)
            yield Client(name, through, str(output.get("failed", ""))[:200])
