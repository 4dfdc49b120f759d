"""Which of the job's own addresses the installed HTTP clients would reach through a proxy, as these clients themselves say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_doctor.toolkit import child_proxied
from verl_doctor.toolkit.child import ask_child, ending
from verl_doctor.toolkit.fact_effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.fact_job_nodes import JobNodes
from verl_doctor.toolkit.fact_launch import Launch, Setting
from verl_doctor.toolkit.fact_network import Network
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_NAMES = tuple(spelt for name in (*_PROXIES, "no_proxy") for spelt in (name, name.upper()))
_LIMIT = 8.0  # seconds
_LOCAL = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Client:
    """One HTTP client: the hosts that it reaches through a proxy, or why it cannot be used with these variables at all."""

    name: str
    proxied: tuple[str, ...] = ()
    failed: str = ""


@dataclass(frozen=True)
class Proxied:
    """`hosts` are the addresses that the job uses itself. `no_proxy` is what the clients were given, by name.

    `named_by` are the variables that name a proxy; their values are not kept. `path` and `line` are where a launch file sets the
    list of exceptions, "" and 0 when the shell does or nobody.
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
    variables: Variables,
    launch: Launch | Unknown,
    environment: EffectiveEnvironment | Unknown,
) -> Proxied | Unknown:
    """Ask the clients, in a child of the target's interpreter, when a variable names a proxy."""
    settings = (
        {}
        if isinstance(launch, Unknown)
        else {one.name: one for one in launch.settings if one.name in _NAMES}
    )
    given = _given(variables, settings, environment)
    named_by = tuple(name for name in given if name.lower() in _PROXIES)
    if not named_by:
        return Absent("no variable names a proxy")
    untold = next((name for name, value in given.items() if value is None), "")
    if untold:
        return Unknown(f"the value of {untold} in the launch script cannot be told by reading it")
    hosts = _hosts(network, nodes)
    told = _ask(machine, interpreter.executable, {k: v for k, v in given.items() if v is not None}, hosts)
    if isinstance(told, Unknown):
        return told
    exceptions = {name: value for name, value in given.items() if _is_list(name) and value is not None}
    places = [settings[name] for name in exceptions if name in settings]
    return Proxied(
        hosts,
        named_by,
        exceptions,
        tuple(_clients(told, hosts)),
        places[0].path if places else "",
        places[0].line if places else 0,
    )


def _given(
    variables: Variables, settings: Mapping[str, Setting], environment: EffectiveEnvironment | Unknown
) -> dict[str, str | None]:
    """The variables as the workers have them; where that is not known the shell's, and over them those of the launch files.

    None: what it is cannot be told. Of a proxy only the scheme is kept.
    """
    found: dict[str, str | None] = {name: variables.get(name) for name in _NAMES if variables.get(name)}
    found.update(dict.fromkeys((name for name in _NAMES if name in variables.withheld), "http://"))
    for name, setting in settings.items():
        found[name] = "" if setting.removed else setting.value
    if not isinstance(environment, Unknown):
        seen = {name: environment.worker(name) for name in _NAMES}
        found.update({name: value.text or "" for name, value in seen.items() if not value.untold})
    return {
        name: value if _is_list(name) else f"{_scheme(value or '')}://proxy.invalid:3128"
        for name, value in found.items()
        if value != ""
    }


def _is_list(name: str) -> bool:
    """Whether it holds the exceptions, and no proxy."""
    return name.lower() == "no_proxy"


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    return scheme if separator else "http"


def _hosts(network: Network, nodes: JobNodes) -> tuple[str, ...]:
    """This machine and the heads, as the processes of a job name them."""
    own = [
        each.addresses[0] for each in network.interfaces if each.name == nodes.interface and each.addresses
    ]
    heads = [head.address or head.host for head in nodes.heads]
    return tuple(dict.fromkeys((*own, *heads, *_LOCAL)))


def _url(host: str) -> str:
    return f"http://[{host}]:8000/" if ":" in host else f"http://{host}:8000/"


def _ask(
    machine: Machine, python: str, variables: Mapping[str, str], hosts: tuple[str, ...]
) -> dict[str, Any] | Unknown:
    question = json.dumps({"variables": variables, "urls": [_url(host) for host in hosts]})
    heard = ask_child(machine, python, child_proxied, question, timeout=_LIMIT)
    if isinstance(heard, Unknown):
        return heard
    answer, told = heard
    if not isinstance(told, dict):
        return Unknown(f"the HTTP clients could not be asked about proxies: {ending(answer, _LIMIT)}")
    return told


def _clients(told: Mapping[str, Any], hosts: tuple[str, ...]) -> Iterator[Client]:
    """Those that are installed."""
    for name, answer in told.items():
        if answer:
            urls = answer.get("proxied", ())
            through = tuple(host for host in hosts if _url(host) in urls)
            yield Client(name, through, str(answer.get("failed", ""))[:200])
