"""NET113: traffic between the job's own machines goes through a proxy."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from verl_doctor.toolkit.collectors.connections.proxied import Client, Proxied
from verl_doctor.toolkit.collectors.network.network import is_address
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_HOSTS = ("10.0.0.5", "127.0.0.1", "localhost")
_DIRECT = (Client("httpx"), Client("requests"))
_ALL = {"no_proxy": "127.0.0.1,localhost,10.0.0.5"}
_NETS = {"no_proxy": "127.0.0.1,localhost,10.0.0.0/8"}


def _examples() -> list[Example]:
    return [
        Example(
            "every address is excepted",
            (Proxied(hosts=_HOSTS, named_by=("http_proxy",), no_proxy=_ALL, clients=_DIRECT),),
        ),
        Example("neither client is installed", (Proxied(hosts=_HOSTS, named_by=("http_proxy",)),)),
        Example(
            "no exceptions",
            (
                Proxied(
                    hosts=_HOSTS,
                    named_by=("http_proxy",),
                    no_proxy={},
                    clients=(Client(name="httpx", proxied=_HOSTS), Client(name="requests", proxied=_HOSTS)),
                ),
            ),
            "httpx and requests send",
        ),
        Example(
            "a network range, which httpx does not support",
            (
                Proxied(
                    hosts=_HOSTS,
                    named_by=("http_proxy",),
                    no_proxy=_NETS,
                    clients=(Client(name="httpx", proxied=_HOSTS[:1]), Client("requests")),
                ),
            ),
            "httpx does not understand 10.0.0.0/8",
        ),
        Example(
            "a proxy that httpx cannot use",
            (
                Proxied(
                    hosts=_HOSTS,
                    named_by=("all_proxy",),
                    no_proxy=_ALL,
                    clients=(Client("httpx", failed="ImportError: no socksio"),),
                ),
            ),
            "httpx cannot be used: ImportError",
        ),
    ]


@check("NET113", severity="warning", examples=_examples)
def proxy_between_nodes(proxied: Proxied) -> Iterator[Finding]:
    """Traffic between the job's own machines goes through a proxy.

    ## Why it matters

    The proxy that is set for downloads also receives requests to the job's own servers, unless `no_proxy`
    excludes them: calls fail with `503 Service Unavailable` or a timeout. OpenAI's client, which agent loops
    and checks use, is built on httpx; `ray job submit`, the state API and verl's SGLang servers use requests.
    httpx takes names and addresses in `no_proxy` and ignores networks such as 10.0.0.0/8, which requests
    understands.

    ## How to fix

    Before Ray starts, add the address of each node, 127.0.0.1 and localhost to both `no_proxy` and
    `NO_PROXY`. The finding and the fix contain those of this node and of the head.
    """
    for client in proxied.clients:
        if client.failed:
            yield Finding(
                f"with {' and '.join(proxied.named_by)} set, {client.name} cannot be used: {client.failed}",
                Evidence(client.failed, "a proxy that it can use, or none", "the installed package"),
                subject=Subject("package", client.name),
                remedy="install the package it requires, or use an http:// proxy",
            )
    through = {client.name: client.proxied for client in proxied.clients if client.proxied}
    if not through:
        return
    hosts = [host for host in proxied.hosts if any(host in found for found in through.values())]
    networks = _networks(proxied, hosts)
    limitation = (
        f"; {' and '.join(through)} does not understand {', '.join(networks)}"
        if networks and len(through) == 1
        else ""
    )
    yield Finding(
        (
            f"{' and '.join(through)} send{'s' if len(through) == 1 else ''} traffic for {', '.join(hosts)} "
            f"to the proxy of {' and '.join(proxied.named_by)}{limitation}"
        ),
        Evidence(
            "; ".join(f"{name}={value}" for name, value in proxied.no_proxy.items()) or "no_proxy is not set",
            f"no_proxy and NO_PROXY with {','.join(hosts)}",
            "the installed clients, queried for the route that they would take",
        ),
        subject=Subject("variable", "no_proxy"),
        location=Location(proxied.path, proxied.line) if proxied.path else None,
        remedy=f"add {','.join(hosts)}, and the addresses of the other nodes, to no_proxy and NO_PROXY",
        fix="no-proxy-between-nodes",
    )


def _networks(proxied: Proxied, hosts: list[str]) -> list[str]:
    """The networks among the exceptions that hold one of these addresses."""
    words = {word.strip() for value in proxied.no_proxy.values() for word in value.split(",") if "/" in word}
    return sorted(
        word
        for word in words
        if any(_holds(word, ipaddress.ip_address(host)) for host in hosts if is_address(host))
    )


def _holds(network: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
