"""rich's console, which is loaded only where lines are printed with styles."""

from __future__ import annotations

import os
from typing import TextIO

from rich.console import Console


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise the same error as without rich, which would end the command with 1."""
        raise BrokenPipeError


def console_for(file: TextIO) -> Console:
    """Return a console that adds no markup of its own, and colours only on a terminal."""
    environ = {name: value for name, value in os.environ.items() if name not in _SIZES or _is_a_size(value)}
    return _Console(file=file, highlight=False, markup=False, emoji=False, _environ=environ)


_SIZES = frozenset({"COLUMNS", "LINES"})


def _is_a_size(value: str) -> bool:
    """Return whether this is a possible size of a terminal: in 0 columns rich prints nothing at all."""
    return value.isdecimal() and int(value) > 0
