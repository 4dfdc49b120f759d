"""Whether the package indexes that pip and uv use here respond, and how fast.

verl's scripts/diagnose.py tests the same with --network.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from verl_doctor.toolkit.collectors.network.network import resolve
from verl_doctor.toolkit.index.access import WebError
from verl_doctor.toolkit.index.settings import PYPI, index_settings
from verl_doctor.toolkit.index.web import Web
from verl_doctor.toolkit.machine import Machine

_PROJECT = "pip"  # in every index that is not empty
_MOST = 16 * 1024 * 1024  # bytes of its page
_NAME_TIMEOUT = 10.0  # seconds for a name


@dataclass(frozen=True)
class Tried:
    """One index by its `host`: the seconds for its name and its page, and what went wrong, "" for nothing."""

    host: str
    resolving: float
    loading: float = 0.0
    trouble: str = ""

    @property
    def is_public(self) -> bool:
        """Whether the host is public."""
        return self.host == urlsplit(PYPI).hostname


def try_indexes(machine: Machine, prefix: Path) -> Iterator[Tried]:
    """Request one page from each. Raises UsageError if the configuration of pip or uv cannot be read."""
    settings = index_settings(machine, prefix)
    web = Web(settings)
    try:
        for index in settings.indexes:
            if index.startswith(("http://", "https://")):
                yield _tried(web, index)
    finally:
        web.close()


def _tried(web: Web, index: str) -> Tried:
    host = urlsplit(index).hostname or ""
    begun = time.perf_counter()
    name = resolve(host, _NAME_TIMEOUT)
    resolving = time.perf_counter() - begun
    begun = time.perf_counter()
    try:
        web.page(f"{index.rstrip('/')}/{_PROJECT}/", "text/html", _MOST)
    except WebError as error:
        unknown = f"; its name: {name.failed}" if name.failed else ""
        return Tried(host, resolving, time.perf_counter() - begun, f"{error}{unknown}")
    return Tried(host, resolving, time.perf_counter() - begun)
