"""Prevents plugins from ending the doctor (on a second import, in a thread, at exit) or keeping it alive.

A child has imported each plugin before (`plugin_trial`), but a second import may behave differently, for
example because of a file that the first one has created.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

EXIT_LIMIT = 5.0
"""Seconds for what plugins do at the doctor's exit: threads it would wait for, and atexit functions."""

_really = os._exit
execute = os.execv
"""What verl-doctor itself uses to become another program."""


class PluginExitError(BaseException):
    """A plugin called os._exit(): the report would be lost, or its exit code replaced."""


class PluginHangError(BaseException):
    """The import of a plugin took too long."""


def refuse_exits() -> None:
    """Make os._exit() and os.exec*() raise in this process from now on.

    Children that are forked from it may do both.
    """
    own = os.getpid()

    def refusing(program: Callable[..., object]) -> Callable[..., object]:
        def execute(*arguments: object) -> object:
            if os.getpid() != own:
                return program(*arguments)
            raise PluginExitError("a plugin tried to replace the doctor with another program")

        return execute

    def refuse(status: int) -> None:
        if os.getpid() != own:
            _really(status)
        raise PluginExitError(f"a plugin tried to end the doctor with status {status}")

    if os._exit is _really:
        for name, program in (
            ("_exit", refuse),
            ("execv", refusing(os.execv)),  # all others of its kind call one of these two
            ("execve", refusing(os.execve)),
        ):
            for module in (os, sys.modules[os.name]):  # posix
                vars(module)[name] = program


@contextlib.contextmanager
def limited_import(seconds: float) -> Iterator[None]:
    """Raise PluginHangError in the main thread after this time, and every second from then on.

    Other threads are not limited.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise PluginHangError(f"its import did not end within {seconds:.0f} s in verl-doctor itself")

    begun = time.monotonic()
    before = signal.signal(signal.SIGALRM, end)
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        # A timer of whoever runs the doctor in their own process; an overdue alarm is delivered at once.
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begun), 0.001), again)


def limit_exit(code: object) -> None:
    """End this process with its code if its exit takes too long because of a plugin.

    Without plugins, nothing is done.
    """
    if os._exit is not _really:
        status = code if isinstance(code, int) else int(code is not None)
        threading.Thread(target=_end, args=(status,), name="exit", daemon=True).start()


def _end(status: int) -> None:
    time.sleep(EXIT_LIMIT)
    _really(status)
