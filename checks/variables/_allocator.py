"""Shared by ENV115 and its fix: the options of torch's allocator in one variable."""

from __future__ import annotations

import re

# torch accepts only "True", with or without blanks (c10/core/AllocatorConfig.h).
_EXPANDABLE = re.compile(r"expandable_segments\s*:\s*True")


def is_expandable(value: str) -> bool:
    """Whether torch would use expandable segments with these options."""
    return any(_EXPANDABLE.fullmatch(option.strip()) for option in value.split(","))


def without_expandable(value: str) -> str:
    """The other options, unchanged."""
    return ",".join(option for option in value.split(",") if not _EXPANDABLE.fullmatch(option.strip()))
