"""Reports which addresses the installed HTTP clients would reach through a proxy.

Runs under the target's interpreter.

It is passed as text, so it needs the standard library and the clients only. Nothing is sent: each client only
computes its route. Called with a token and a JSON object: `variables` are the proxy variables of the job,
`urls` the addresses to check.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def of_httpx(urls: list[str]) -> list[str]:
    """Return the URLs that httpx's client would not reach directly; openai's client is built on it."""
    import httpx  # noqa: PLC0415

    with httpx.Client() as client:
        direct: Any = client._transport  # noqa: SLF001 - there is no public accessor
        way: Any = client._transport_for_url  # noqa: SLF001
        return [url for url in urls if way(httpx.URL(url)) is not direct]


def of_requests(urls: list[str]) -> list[str]:
    """Return the URLs that requests would not reach directly."""
    import requests.utils  # noqa: PLC0415

    return [url for url in urls if requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url))]


CLIENTS: dict[str, Callable[[list[str]], list[str]]] = {"httpx": of_httpx, "requests": of_requests}


def answer_of(name: str, urls: list[str]) -> dict[str, Any]:
    """Return one client's result, {} if it is not installed."""
    try:
        return {"proxied": CLIENTS[name](urls)}
    except ModuleNotFoundError as error:
        return {} if error.name == name else {"failed": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a client raises is an answer
        return {"failed": f"{type(error).__name__}: {error}"}


def main(token: str, question: dict[str, Any]) -> None:
    """Print the result after the token, which other output cannot contain."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    os.environ.update(question["variables"])
    answers = {name: answer_of(name, question["urls"]) for name in CLIENTS}
    sys.stdout.write(f"\n{token}{json.dumps(answers)}\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
