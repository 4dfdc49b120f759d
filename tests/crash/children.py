"""Forked children, also of another user."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

NOBODY = 65534


def fork() -> int:
    """Fork, although some earlier test may have left a thread behind: the children here take no locks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def become(user: int) -> None:
    """Give up all privileges for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def run_as(user: int, job: Callable[[], object]) -> str:
    """Do the job and return what it raised, or nothing."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        said = "the child ended early"
        try:
            become(user)
            job()
            said = ""
        except BaseException as error:  # noqa: BLE001 - it is told to the parent
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writing, said.encode("utf-8", "replace")[:60000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        said = stream.read().decode()
    os.waitpid(child, 0)
    return said
