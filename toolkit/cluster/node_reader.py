"""Reads the responses of nodes: entries that many nodes share are unpacked once and share one text."""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Mapping

from verl_doctor.toolkit.cluster.node_program import unpacked

_KEPT = 4096  # entries; those that nodes share recur before this many others arrive


def read(text: str) -> tuple[Mapping[str, str], str]:
    """Return the entries of `probes.node`'s response by fact name, and why there are none ("" if any)."""
    try:
        response = json.loads(text)
        if "facts" not in response:
            return {}, str(response["missing"])
        return {name: _entry(packed) for name, packed in response["facts"].items()}, ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error):
        return {}, "its response is truncated or damaged" if text else "its process ended without a response"


@functools.lru_cache(_KEPT)
def _entry(packed: str) -> str:
    return unpacked(packed)
