"""The files that a script makes or writes while it runs.

What lies on the disk now is thus not taken for what the script will find.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.sources.shell.found import Call, Lines

ANYWHERE = "/"
"""Stands for a file whose name is unknown."""


@dataclass
class MadeFiles:
    """What was made so far, by `calls` and by redirections.

    `load` returns the text of a file, None if unreadable.

    `made` are the paths that may have been created, each with the number of calls until then, `outputs` those
    of redirections; `awaited` are those that it waits for, which others make; `texts` are what a command has
    certainly written to a file, each with the length of `made` then. `substituted` are the texts of command
    substitutions.
    """

    calls: list[Call]
    load: Callable[[str], str | None]
    made: list[tuple[int, str]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    awaited: list[str] = field(default_factory=list)
    texts: dict[str, tuple[int, Lines]] = field(default_factory=dict)
    substituted: list[str] = field(default_factory=list)

    def make(self, paths: Iterable[str]) -> None:
        """Note what the last call creates."""
        self.made += [(len(self.calls), path) for path in paths]

    def wait_for(self, paths: Iterable[str]) -> None:
        """Note files that exist once a loop has ended."""
        new = list(paths)
        self.make(new)
        self.awaited += new

    def write(self, names: Iterable[str | None], folder: str, printed: Lines | None) -> None:
        """Note the files that output goes to, and the text if all of it is known and certain."""
        for name in names:
            if name is None or not name.startswith("/dev/"):
                path = ANYWHERE if name is None or not folder else os.path.normpath(Path(folder, name))
                self.made.append((len(self.calls), path))
                if printed is None:
                    self.texts.pop(path, None)
                else:
                    self.texts[path] = (len(self.made), printed)
                self.outputs.append(path)

    def may_have_made(self, path: str, before: Call | None = None) -> bool:
        """Return whether something run earlier, or `before` a call, may have created a folder or file."""
        name = Path(path).name
        calls = self._until(before)
        return (
            any(
                argument.text is None or name in argument.text or argument.text.endswith((".sh", ".py"))
                for call in calls
                for argument in call.argv
            )
            or any(number <= len(calls) and leads_to(place, path) for number, place in self.made)
            or any(name in script for script in self.substituted)
        )

    def has_written(self, path: str, before: Call | None = None) -> bool:
        """Return whether the script may have changed this file, or done so `before` a call.

        If so, its text is not the one on the disk.
        """
        return path in self.outputs or self.has_made(path, before)

    def has_made(self, path: str, before: Call | None = None) -> bool:
        """Return whether the script may have created exactly this file `before` a call."""
        count = len(self._until(before))
        return any(number <= count and place == path for number, place in self.made)

    def text_at(self, path: str, before: Call) -> Lines | None:
        """Return the text of a file at a call, None if it is unknown.

        It is the text that a command has written, or that on the disk.
        """
        if not self.has_written(path, before):
            source = self.load(path)
            return None if source is None else Lines(source, path)
        count = len(self._until(before))
        written, found = self.texts.get(path, (0, None))
        later = (place for number, place in self.made[written:] if number <= count)
        return None if any(leads_to(place, path) for place in later) else found

    def text_now(self, name: str, folder: str) -> Lines | None:
        """Return the text of a file; None if it is unknown or may have been written by the script."""
        path = os.path.normpath(Path(folder, name)) if folder else ""
        source = self.load(path) if path and not self.may_have_made(path) else None
        return None if source is None else Lines(source, path)

    def _until(self, call: Call | None) -> list[Call]:
        return list(itertools.takewhile(lambda earlier: earlier is not call, self.calls))


def leads_to(made: str, path: str) -> bool:
    """Return whether a folder or file exists because another was made."""
    return made in (ANYWHERE, path) or path.startswith(f"{made}/") or made.startswith(f"{path}/")
