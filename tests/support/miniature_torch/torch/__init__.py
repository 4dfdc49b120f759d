"""As much of torch as a trial of a collective touches: ranks meet in files. MINIATURE says what goes wrong.

"1:sleeps" lets rank 1 sleep in its first all-reduce, "1:dies" ends it, "1:floods" lets it print without end,
"1:damages" gives it a wrong sum. "P2P:..." does so to each rank unless NCCL_P2P_DISABLE is 1.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

__version__ = "0.0"
if os.environ.get("MINIATURE") == "import:fails":
    raise ImportError("libcudart.so.13: cannot open shared object file")

cuda = SimpleNamespace(set_device=lambda _: None, nccl=SimpleNamespace(version=lambda: (2, 28, 9)))


class Number:
    """A tensor with equal elements."""

    def __init__(self, value: float) -> None:
        self.value = value

    def min(self) -> Number:
        return self

    def max(self) -> Number:
        return self

    def item(self) -> float:
        return self.value


def full(_shape: tuple[int, ...], value: float, *, device: str) -> Number:
    assert device
    return Number(value)
