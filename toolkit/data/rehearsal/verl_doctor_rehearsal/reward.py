"""A reward that differs between the responses to one prompt, whatever their content.

It is the same for equal responses.

GRPO learns from differences within a group: a random model rewarded for correct responses gets 0 for each,
and learns nothing.
"""

from __future__ import annotations

import hashlib
from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> float:
    """Return a number from 0 to 1 that depends only on the text."""
    return int.from_bytes(hashlib.sha256(solution_str.encode()).digest()[:2], "big") / 65535
