"""Temporary handlers for signals that end a command; the previous handlers are restored afterwards."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator


@contextlib.contextmanager
def taken(
    numbers: Iterable[signal.Signals], handle: Callable[[signal.Signals], None], *, once: bool = False
) -> Iterator[None]:
    """Handle these signals instead of ending; with `once`, only the first.

    An ignored signal, such as SIGHUP under `nohup`, stays ignored.
    """
    before = {
        number: handler for number in numbers if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, _: object) -> None:
        if once:
            put_back()
        handle(signal.Signals(number))

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        put_back()


_inherited = signal.getsignal(signal.SIGCHLD)


def heed_ends_of_children() -> None:
    """Do not ignore SIGCHLD, as some parents do: the kernel would discard the exit codes of our children."""
    if _inherited is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def ignore_as_inherited() -> None:
    """Ignore SIGCHLD again if the parent did, before this process becomes another program."""
    if _inherited is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)


class EndedBySignal(KeyboardInterrupt):
    """A signal ended the command; its number is the argument."""


def as_ctrl_c(*numbers: signal.Signals) -> contextlib.AbstractContextManager[None]:
    """Treat the first of these signals as Ctrl-C, and ignore further ones.

    They are ignored while work is ended and unfinished files are removed.
    """
    ended = False

    def stop(number: signal.Signals) -> None:
        nonlocal ended
        if not ended:
            ended = True
            raise EndedBySignal(number)

    return taken(numbers, stop)
