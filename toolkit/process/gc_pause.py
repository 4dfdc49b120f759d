"""Pauses the cyclic garbage collector."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_put_off() -> Iterator[None]:
    """Collect no cycles in this block.

    Syntax trees, or the code of all rules, are so many objects that scanning them costs up to a fifth of the time. The pause
    holds for all threads. Blocks may overlap in several: the first to end turns the collection on again. All objects then
    count as old, so that they are not scanned at once.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.unfreeze()
            gc.enable()


def leave_it_at_exit() -> None:
    """End this process without a final garbage collection: the system frees all memory at once, Python takes 0.1 s."""
    atexit.register(gc.freeze)
