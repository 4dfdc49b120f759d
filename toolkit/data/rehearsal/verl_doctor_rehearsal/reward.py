"""A reward that differs between the answers to one prompt, whatever they say, and is the same for the same answer.

GRPO learns from differences within a group: a random model that is paid for right answers gets 0 for each, and learns nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> float:
    """Return a number from 0 to 1 that the text decides."""
    return int.from_bytes(hashlib.sha256(solution_str.encode()).digest()[:2], "big") / 65535
