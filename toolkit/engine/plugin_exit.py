"""A plugin may not end the doctor: not when it is imported a second time, not from a thread, and not at the doctor's own end."""

from __future__ import annotations

import os


class PluginExitError(BaseException):
    """A plugin called os._exit(): the report would be lost, or its exit code replaced."""


def refuse_exits() -> None:
    """From now on os._exit() raises in this process. Children that are forked from it may end."""
    really, own = os._exit, os.getpid()

    def refuse(status: int) -> None:
        if os.getpid() != own:
            really(status)
        raise PluginExitError(f"a plugin wanted to end the doctor with status {status}")

    if really.__name__ != refuse.__name__:
        vars(os)["_exit"] = refuse
