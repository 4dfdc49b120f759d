"""Files and folders that a script needs and certainly lacks where it runs."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.sources.shell.called_programs import (
    BRINGS,
    CHANGES,
    CHANGES_NONE,
    INSTALLS_NONE,
    called_programs,
)
from verl_doctor.toolkit.sources.shell.found import Argument
from verl_doctor.toolkit.sources.shell.made_files import MadeFiles, leads_to
from verl_doctor.toolkit.sources.shell.scope import Scope
from verl_doctor.toolkit.sources.shell.start import Start

# Python's `glob` reads these as bash does; all else depends on bash's options.
_PLAIN_PATTERN = re.compile(r"(?:[^\[\]*?()!^\\]|\*(?!\*)|\?|\[[\w,-]+\])+")
_OF_PATTERNS = ("nullglob", "failglob", "dotglob", "nocaseglob", "extglob", "globstar", "noglob")
_OF_MACHINES = re.compile(
    r"/(?:dev|proc|sys|etc|usr|opt|run|tmp|var|lib\w*|s?bin|boot|snap|local\w*|scratch\w*)(?:/|$)|/\.\w+$"
)
_INSTALLED = re.compile(r"/(?:opt|usr|etc)/")  # nothing is put there while a job waits
_SHALLOW = 2  # the parts of `/tmp`: such a folder is nobody's own
_PYTHON, _SHELLS = re.compile(r"python[\d.]*"), frozenset({"bash", "sh"})


@dataclass
class Presence:
    """Which files and folders exist for certain, and which do not.

    `is_there` is None if the script runs on another machine: nothing is certain then. `absent` states what
    the last test looked for and what does not exist.
    """

    scope: Scope
    files: MadeFiles
    start: Start
    is_there: Callable[[str], bool] | None = None
    absent: str = field(default="", init=False)

    def is_gone(self, path: str) -> bool:
        """Return whether a file or folder does not exist on this machine, whatever the script has made."""
        return self.is_there is not None and not self.is_there(path)

    def has_no(self, name: str) -> bool:
        """Return whether nothing has this name or pattern, and nothing that ran may have changed that.

        The name is one, or the pattern matches.
        """
        if not glob.has_magic(name):
            path = self._whole(name)
            return self.is_gone(path) and not self.files.may_have_made(path)
        if self.is_there is None or not self.is_plain(name):
            return False
        folder = (
            re.split(r"/(?=[^/]*[*?[])", name, maxsplit=1)[0] if "/" in re.split(r"[*?[]", name)[0] else "."
        )
        made = any(leads_to(place, self._whole(folder)) for _, place in self.files.made)
        return not self.scope.finds(name) and not made and not self.files.calls

    def has_in_it(self, folder: str, text: str) -> bool | None:
        """Return whether a folder has a file with this text in its name; None where that may change.

        A script that makes the folder does not fill it.
        """
        path = self._whole(folder)
        filled = [place for _, place in self.files.made if place != path and leads_to(place, path)]
        unknown = not self._cwd or self.is_there is None or self.is_of_machine(folder) or any(filled)
        if unknown or not called_programs(self.files.calls) <= CHANGES_NONE:
            return None
        return self.scope.finds(f"{glob.escape(path)}/*{text}*")

    def has_no_here(self, name: str) -> bool:
        """Return whether nothing has this name, also in the script's folder, where the job may be started."""
        return self.has_no(name) and self.has_no(os.path.normpath(self._folder_of_script / name))

    def lacks(self, name: str) -> bool:
        """Return whether a file that a test names certainly does not exist, and note it."""
        found = self._cwd != "" and not self.is_of_machine(name) and self.has_no_here(name)
        self.absent = f"{name} does not exist" if found else self.absent
        return found

    def first_missing(self, names: Iterable[str]) -> str:
        """Return the first of these files and patterns that certainly does not exist; "" if each may."""
        return next((name for name in names if not self.is_of_machine(name) and self.has_no(name)), "")

    def first_without_folder(self, names: Iterable[str]) -> str:
        """Return the first of these files whose folder does not exist, "" without any.

        Nothing may have made the folder.
        """
        paths = {name: Path(self._whole(name)) for name in names if self._cwd}
        missing = (name for name, path in paths.items() if self.has_no(str(path.parent)))
        return next((name for name in missing if not self.is_of_machine(name)), "")

    def can_make(self, folder: str) -> bool:
        """Return whether `mkdir -p` may make a folder: more than the root exists above it, on a disk."""
        exists = self.is_there or (lambda _: False)
        above = next((str(part) for part in Path(folder).parents if exists(str(part))), "/")
        return above not in {"/", "/proc", "/sys"}

    def is_of_machine(self, name: str) -> bool:
        """Return whether a path belongs to the machine, not the job: it may exist where the job runs."""
        path = Path(self._whole(name))
        own = (Path(self._cwd), self._folder_of_script)
        if any(_is_below(path, folder) for folder in own):
            return False
        if self.may_have_installed(path):
            return True
        known = self.start.is_here and not self.start.is_batch and _INSTALLED.match(str(path))
        if known or _is_below(path, self._home):
            return False
        top = str(Path(*path.parts[:2]))
        return _OF_MACHINES.match(str(path)) is not None or self.is_gone(top)

    def not_openable(self, argv: Sequence[Argument]) -> str:
        """Return the error of Python or a shell if the file of its program is missing; "" if it may exist."""
        name, program = argv[0].text or "", argv[1].text if len(argv) > 1 else None
        if not program or glob.has_magic(program) or not self._cwd:
            return ""
        if self.is_of_machine(program) or not self.has_no_here(program):
            return ""
        if _PYTHON.fullmatch(name) and program.endswith(".py"):
            return f"{name}: can't open file {program}"
        return (
            f"{name}: {program}: No such file or directory"
            if name in _SHELLS and program.endswith(".sh")
            else ""
        )

    def may_match_others(self, pattern: str) -> bool:
        """Return whether a pattern may match other files when the script runs."""
        folder = pattern.rpartition("/")[0]
        path = self._whole(folder)
        unknown = not self._cwd or glob.has_magic(folder) or self.is_of_machine(path)
        changed = not called_programs(self.files.calls) <= CHANGES_NONE or any(
            CHANGES.search(script) for script in self.files.substituted
        )
        return unknown or changed or not self.is_plain(pattern) or self.files.may_have_made(path)

    def is_plain(self, pattern: str) -> bool:
        """Return whether a pattern matches in bash what it matches in Python."""
        state = self.scope.state
        usual = all(state.option(name) is False for name in _OF_PATTERNS) and "GLOBIGNORE" not in {
            *state.variables,
            *state.environ,
        }
        return usual and not self.scope.is_zsh and _PLAIN_PATTERN.fullmatch(pattern) is not None

    def may_have_installed(self, path: Path) -> bool:
        """Return whether a program so far may have put this where no argument shows it.

        Installers write to homes and to /opt.
        """
        own = (Path(self._cwd), self._folder_of_script)
        home = _is_below(path, self._home) and not any(_is_below(path, folder) for folder in own)
        if not home and not _INSTALLED.match(str(path)):
            return False
        names = {None if name is None else Path(name).name for name in called_programs(self.files.calls)}
        return not names <= INSTALLS_NONE or any(BRINGS.search(script) for script in self.files.substituted)

    def _whole(self, name: str) -> str:
        return os.path.normpath(Path(self._cwd, name))

    @property
    def _cwd(self) -> str:
        return self.scope.state.cwd

    @property
    def _home(self) -> Path:
        home = self.scope.single("HOME")
        return Path(home if isinstance(home, str) else self.scope.state.environ.get("HOME", ""))

    @property
    def _folder_of_script(self) -> Path:
        return Path(self.scope.source()).parent


def _is_below(path: Path, folder: Path) -> bool:
    return len(folder.parts) > _SHALLOW and path.is_relative_to(folder)
