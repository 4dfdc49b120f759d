"""Everything that this process accessed, and for which kept facts it counts."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from verl_doctor.toolkit.system.looks.states import CannotBeKeptError, Settled, row_of

_READLINK = os.readlink  # not those of `watching`, which note an access
_GETCWD = os.getcwd
_here = threading.local()

Kind = Literal["followed", "links", "listed", "whole"]
"""How a path was accessed: behind links, a link itself, the list of a folder, all entries of one."""


class Looks:
    """Everything that was accessed.

    `unkept` are the tasks that accessed processes, which cannot be compared. `ignored` are the folders that
    do not count; a file in one of `passing` counts only for `counted`.
    """

    def __init__(self, ignored: Iterable[str], passing: Iterable[str]) -> None:
        self._ignored = tuple(f"{folder.rstrip('/')}/" for folder in ignored)
        self._passing = tuple(f"{folder.rstrip('/')}/" for folder in passing)
        self._paths: dict[Kind, set[str]] = {
            "followed": set(),
            "links": set(),
            "listed": set(),
            "whole": set(),
        }
        self._access: dict[tuple[str, int], bool] = {}
        self.why_not = ""
        self.unkept: set[str] = set()

    def add(self, path: Any, kind: Kind, folder: int | None = None) -> None:
        """Note an access."""
        if (name := self._name(path, folder)) is not None:
            self._paths[kind].add(name)

    def add_access(self, path: Any, mode: int, answer: bool) -> None:
        """Note the result of a permission check."""
        if (name := self._name(path, None)) is not None:
            self._access[name, mode] = answer

    def refuse(self, why: str) -> None:
        """Note that a kept fact depends on something other than files."""
        if counted_work():
            self.why_not = self.why_not or why

    def _name(self, path: Any, folder: int | None) -> str | None:
        """Return the full path; None where an access does not count."""
        name = absolute_text(path, folder)
        if name is None or f"{name}/".startswith(self._ignored):
            return None
        if (work := counted_work()) and name.startswith("/proc/"):
            self.unkept.add(work)
            return None
        return None if not work and f"{name}/".startswith(self._passing) else name

    def record(self, began: float) -> dict[str, Any]:
        """Return all accesses as JSON, with the current state.

        Raises CannotBeKeptError if a later change might not show.

        `began` is the time of the first access: what changed after it, or shortly before, may differ from
        what was read. Collectors that exceeded their time may still add accesses, so what is iterated over is
        copied.
        """
        if self.why_not:
            raise CannotBeKeptError(self.why_not)
        for folder in tuple(self._paths["whole"]):
            names = [f"{folder}/{name}" for name in _names(folder)]
            self._paths["followed"].update(names)
            self._paths["links"].update(names)
        settled = Settled(began)
        rows = [row_of(*entry, settled.check) for entry in self._by_folder()]
        return {
            "rows": rows,
            "access": [[*question, answer] for question, answer in self._access.copy().items()],
        }

    def _by_folder(self) -> list[tuple[str, str, str, bool]]:
        """Return each folder with the names followed, those not followed, and whether it was listed."""
        listed = frozenset(self._paths["listed"])
        found: dict[str, tuple[list[str], list[str]]] = {folder: ([], []) for folder in listed}
        for number, paths in enumerate((tuple(self._paths["followed"]), tuple(self._paths["links"]))):
            for path in paths:
                folder, _, name = path.rpartition("/")
                found.setdefault(folder or "/", ([], []))[number].append(name or ".")
        return [
            (folder, "/".join(sorted(followed)), "/".join(sorted(links)), folder in listed)
            for folder, (followed, links) in found.items()
        ]


@contextlib.contextmanager
def counted(work: str) -> Iterator[None]:
    """Count all accesses of this thread in this block, wherever they are: a kept fact depends on them.

    `work` names the fact.
    """
    _here.work = work
    try:
        yield
    finally:
        _here.work = ""


def counted_work() -> str:
    """Return the kept fact that this thread collects, "" for none."""
    return getattr(_here, "work", "")


def absolute_text(path: Any, folder: int | None) -> str | None:
    """Return a path as absolute text; None for anything that cannot name a file."""
    try:
        if path is None:
            return _GETCWD()
        if isinstance(path, int):
            name = _READLINK(f"/proc/self/fd/{path}")
            return name if name.startswith("/") else None
        name = os.fsdecode(path)
        if not name.startswith("/"):
            top = _GETCWD() if folder is None else _READLINK(f"/proc/self/fd/{folder}")
            name = f"{top.rstrip('/')}/{name}" if name not in ("", ".") else top
    except (OSError, TypeError, ValueError):
        return None
    while len(name) > 1 and name.endswith("/"):
        name = name[:-1]
    return name


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []
