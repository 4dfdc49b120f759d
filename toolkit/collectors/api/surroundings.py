"""What is known of the environment besides the two trees that are compared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from verl_doctor.toolkit.collectors.api.settings import Settings
from verl_doctor.toolkit.collectors.installed.trees import Tree


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The packages beside the two trees, the settings of the job and the Python that runs them.

    `engines` are the other installed rollout engines ("sglang"), None if not checked. `called` is the name
    under which the library is installed, if verl looks it up by another. `beside` are trees of packages from
    which the library itself imports, `settings` the job's. `python` is the version that runs them, "" if
    unknown.
    """

    engines: frozenset[str] | None = frozenset()
    called: str = ""
    beside: tuple[Tree, ...] = ()
    settings: Settings | None = None
    python: str = ""


NOT_LOOKED_AT: Final = Surroundings(None)


def python_release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a Python version, none if it is unknown."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
