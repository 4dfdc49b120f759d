"""Paths specific to one cluster: model, data, where results go. The user names them in the configuration."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verl_doctor.toolkit.machine import Machine

_GIB = 2**30
_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": _GIB, "TiB": 2**40}
_AMOUNT = re.compile(rf"(\d{{1,6}}(?:\.\d{{1,3}})?) ?({'|'.join(_UNITS)})")
_OUTPUT = re.compile(
    r"(?:^|[_-])(?:out|output|outputs|save|saves|ckpt|ckpts|checkpoint|checkpoints|log|logs|scratch"
    r"|cache|tmp|temp|spill|results?)(?:$|[_-])"
)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# Placeholders for paths in example files.
_PLACEHOLDER = re.compile(
    r"(?:^|/)(?:path/to|your[-_/]|my[-_/]?path|some[-_/]?path|xxx+(?:$|/))|"
    r"change[-_ ]?me|\bto[-_ ]?do\b|\bfix[-_ ]?me\b|\btbd\b|replace[-_ ]?(?:me|this)|<[^<>/]+>|"
    r"\{\{.*\}\}|^\.\.\.$|^(?:none|null|n/a|unset|undefined|placeholder|example)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Site:
    """One path of this cluster.

    `writes`: the job writes there. `free` is the required free space in bytes, 0 when unspecified.
    """

    name: str
    path: str
    writes: bool = False
    free: int = 0


@dataclass(frozen=True)
class Sites:
    """All configured paths, and the file that configures them ("" for none)."""

    sites: tuple[Site, ...] = ()
    path: str = ""


def plain_path(site: Site, machine: Machine) -> str:
    """Return the path with `~` and set variables expanded; an absolute path, or an address."""
    plain = Template(machine.expanded(site.path)).safe_substitute(machine.environ)
    return plain if is_elsewhere(plain) or "$" in plain else os.path.normpath(machine.cwd / plain)


def is_placeholder(path: str) -> bool:
    """Return whether a value is an example's placeholder for a path that is still to be set.

    An empty one is.
    """
    return not path.strip() or _PLACEHOLDER.search(path.strip()) is not None


def is_elsewhere(path: str) -> bool:
    """Return whether it is an address rather than a path of a file system."""
    return _ELSEWHERE.match(path) is not None


def is_for_output(name: str) -> bool:
    """Return whether a name suggests that the job writes there: `checkpoint_dir`, `DATA_OUTPUT_DIR`."""
    return _OUTPUT.search(name.lower()) is not None


def amount(text: str) -> int | None:
    """Return the number of bytes in a text such as "200 GiB"; None if it is not an amount."""
    found = _AMOUNT.fullmatch(text.strip())
    return int(float(found[1]) * _UNITS[found[2]]) if found else None
