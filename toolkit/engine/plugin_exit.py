"""Prevents plugins from ending the doctor (on a second import, from a thread, or at its exit), and from keeping it alive."""

from __future__ import annotations

import os
import threading
import time

EXIT_LIMIT = 5.0
"""Seconds for what plugins do when the doctor exits: threads that it would wait for, and functions registered with atexit."""

_really = os._exit


class PluginExitError(BaseException):
    """A plugin called os._exit(): the report would be lost, or its exit code replaced."""


def refuse_exits() -> None:
    """Make os._exit() raise in this process from now on. Children that are forked from it may exit."""
    own = os.getpid()

    def refuse(status: int) -> None:
        if os.getpid() != own:
            _really(status)
        raise PluginExitError(f"a plugin wanted to end the doctor with status {status}")

    if os._exit is _really:
        vars(os)["_exit"] = refuse


def limit_exit(code: object) -> None:
    """End this process with its code if its exit takes too long because of a plugin. Without plugins, nothing is done."""
    if os._exit is not _really:
        status = code if isinstance(code, int) else int(code is not None)
        threading.Thread(target=_end, args=(status,), name="exit", daemon=True).start()


def _end(status: int) -> None:
    time.sleep(EXIT_LIMIT)
    _really(status)
