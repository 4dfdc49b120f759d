"""How often a property is tried."""

from __future__ import annotations

import os

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}


def cases(number: int) -> int:
    """As many cases in CI, a quarter of them while somebody works: most of their time goes into making them up."""
    return number if IN_CI else max(1, number // 4)
