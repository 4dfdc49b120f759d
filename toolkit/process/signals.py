"""Signals that ask a command to end: taken for a while, and what they did before is put back afterwards."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn


@contextlib.contextmanager
def taken(
    numbers: Iterable[signal.Signals], tell: Callable[[signal.Signals], None], *, once: bool = False
) -> Iterator[None]:
    """Tell somebody of these signals instead of being ended by them; `once`: of the first one alone. One that is ignored, as SIGHUP behind `nohup`, stays so."""
    before = {
        number: handler for number in numbers if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def heard(number: int, _: object) -> None:
        if once:
            put_back()
        tell(signal.Signals(number))

    for number in before:
        signal.signal(number, heard)
    try:
        yield
    finally:
        put_back()


def as_ctrl_c(*numbers: signal.Signals) -> contextlib.AbstractContextManager[None]:
    """Let these signals do what Ctrl-C does: what runs is ended, and what is unfinished removed."""

    def stop(_: signal.Signals) -> NoReturn:
        raise KeyboardInterrupt

    return taken(numbers, stop)
