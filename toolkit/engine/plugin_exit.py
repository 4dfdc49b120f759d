"""Prevents plugins from ending the doctor: on a second import, from a thread, or at the doctor's exit."""

from __future__ import annotations

import os


class PluginExitError(BaseException):
    """A plugin called os._exit(): the report would be lost, or its exit code replaced."""


def refuse_exits() -> None:
    """Make os._exit() raise in this process from now on. Children that are forked from it may exit."""
    really, own = os._exit, os.getpid()

    def refuse(status: int) -> None:
        if os.getpid() != own:
            really(status)
        raise PluginExitError(f"a plugin wanted to end the doctor with status {status}")

    if really.__name__ != refuse.__name__:
        vars(os)["_exit"] = refuse
