"""How long a package installer may take to find versions that agree.

The session provides it, not a collector.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

PLAN = 120.0
"""Seconds for a plan that is only shown."""

APPLY = 300.0
"""Seconds for a plan that is carried out."""

LONGEST = 3600.0
"""Seconds for either, at most."""


@dataclass(frozen=True)
class InstallerLimit:
    """Seconds for all dry runs of one request together."""

    seconds: float = PLAN


@dataclass(frozen=True)
class Clock:
    """Distributes the seconds of a limit among several runs."""

    seconds: float
    _started: float = field(default_factory=time.monotonic, repr=False)

    def left(self) -> float:
        """Return the seconds that are left, at least one."""
        return max(self._started + self.seconds - time.monotonic(), 1.0)
