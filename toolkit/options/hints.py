"""Hints about options and commands of the previous release, which work for one more release."""

from __future__ import annotations

import sys

from verl_doctor.toolkit.text import harmless


def replaced(old: str, new: str) -> None:
    """Print the replacement of an old option or command on stderr."""
    print(f"verl-doctor: hint: `{harmless(old)}` is now `{harmless(new)}`", file=sys.stderr, flush=True)
