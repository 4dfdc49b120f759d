"""Tests whether a TCP address accepts a connection, which is closed immediately. No data is sent."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Literal

Reply = Literal["connected", "refused", "silence", "no route", "no such name"]


@dataclass(frozen=True)
class Connection:
    """The result of one attempt. `error` is the kernel's name for it."""

    reply: Reply
    error: str = ""


def try_connection(address: str, port: int, limit: float) -> Connection:
    """Try for `limit` seconds. `address` is numeric: resolving a name has no time limit."""
    try:
        socket.create_connection((address, port), timeout=limit).close()
    except ConnectionRefusedError as error:
        return Connection("refused", error.strerror or "")
    except TimeoutError:
        return Connection("silence", f"no response within {limit:g} s")
    except OSError as error:
        return Connection("no route", error.strerror or str(error))
    return Connection("connected")
