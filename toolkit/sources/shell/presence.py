"""What a script needs and certainly lacks where it runs.

Files and folders, programs, and functions of the user's shell.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.sources.shell.found import Argument, Call
from verl_doctor.toolkit.sources.shell.made_files import ANYWHERE, MadeFiles, leads_to
from verl_doctor.toolkit.sources.shell.outcome import is_query
from verl_doctor.toolkit.sources.shell.scope import Scope
from verl_doctor.toolkit.sources.shell.state import OPTIONS

# Commands that are functions of the user's shell, also where a program has the same name, because they change
# variables.
_FUNCTIONS = frozenset({"module", "ml", "spack", "conda", "mamba", "micromamba", "pyenv", "nvm", "use"})
# Those that scripts do not have unless the shell that starts them exports them, or a program has the name.
_NOT_EXPORTED = frozenset({"module", "ml", "spack", "conda", "mamba", "micromamba"})
# What bash has itself (`compgen -bk`), besides the commands that are followed.
_OF_BASH = frozenset(
    {
        ".",
        ":",
        "[",
        "alias",
        "bg",
        "bind",
        "break",
        "builtin",
        "caller",
        "cd",
        "command",
        "compgen",
        "complete",
        "compopt",
        "continue",
        "declare",
        "dirs",
        "disown",
        "echo",
        "enable",
        "eval",
        "exec",
        "exit",
        "export",
        "false",
        "fc",
        "fg",
        "getopts",
        "hash",
        "help",
        "history",
        "jobs",
        "kill",
        "let",
        "local",
        "logout",
        "mapfile",
        "popd",
        "printf",
        "pushd",
        "pwd",
        "read",
        "readarray",
        "readonly",
        "return",
        "set",
        "shift",
        "shopt",
        "source",
        "suspend",
        "test",
        "times",
        "trap",
        "true",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "wait",
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "case",
        "esac",
        "for",
        "select",
        "while",
        "until",
        "do",
        "done",
        "in",
        "function",
        "time",
        "{",
        "}",
        "!",
        "[[",
        "]]",
        "coproc",
    }
)
# Programs that change no files but those that their output goes to.
_CHANGES_NONE = frozenset(
    {
        "ls",
        "date",
        "hostname",
        "nvidia-smi",
        "whoami",
        "id",
        "uname",
        "nproc",
        "lscpu",
        "free",
        "df",
        "du",
        "which",
        "dirname",
        "basename",
        "realpath",
        "readlink",
        "seq",
        "sleep",
        "cat",
        "head",
        "tail",
        "wc",
        "grep",
        "ps",
        "printenv",
        "mkdir",
    }
)
# And those that bring no other program.
_BRINGS_NONE = _CHANGES_NONE | {
    "chmod",
    "cut",
    "expr",
    "kill",
    "pkill",
    "rm",
    "rmdir",
    "sort",
    "tee",
    "touch",
    "tr",
}
# And those that put no files where no argument shows it.
_INSTALLS_NONE = _BRINGS_NONE | {"lspci", "nvcc", "ray", "sysctl"}
_CHANGES = re.compile(r"\b(?:rm|rmdir|mv|cp|ln|touch|find|tar|unzip|rsync|git|python\S*|(?:ba|z|da)?sh)\b|>")
# Python's `glob` reads these as bash does; all else depends on bash's options.
_PLAIN_PATTERN = re.compile(r"(?:[^\[\]*?()!^\\]|\*(?!\*)|\?|\[[\w,-]+\])+")
_OF_PATTERNS = ("nullglob", "failglob", "dotglob", "nocaseglob", "extglob", "globstar", "noglob")
_BRINGS = re.compile(
    r"\b(?:(?:ba|z|da)?sh|curl|wget|tar|unzip|apt\S*|yum|dnf|zypper|apk|pip\w*|uvx?|make|ln|cp|mv"
    r"|install|git|python\S*|PATH)\b"
)
# It is started in another shell, on another machine.
_BATCH = re.compile(r"^#(?:SBATCH|PBS|BSUB|COBALT|OAR|MSUB|NQSV|QSUB|PJM|\$|[ \t]*flux:)[ \t]", re.MULTILINE)
_LOGIN = re.compile(r"#!.*\bbash\s+(?:-\w*l|--login)\b")
# A shell that expands the aliases of a script: one that is called as `sh`, or is interactive.
_EXPANDS = re.compile(r"#!.*(?:\b(?:da|k)?sh\b|\bbash\b.*\s(?:-\w*i|--posix|-O))")
_OF_MACHINES = re.compile(
    r"/(?:dev|proc|sys|etc|usr|opt|run|tmp|var|lib\w*|s?bin|boot|snap|local\w*|scratch\w*)(?:/|$)|/\.\w+$"
)
_INSTALLED = re.compile(r"/(?:opt|usr|etc)/")  # nothing is put there while a job waits
_SHALLOW = 2  # the parts of `/tmp`: such a folder is nobody's own
_PYTHON, _SHELLS = re.compile(r"python[\d.]*"), frozenset({"bash", "sh"})
_HEADER = re.compile(r"#!.*\b(?:ba|da|k)?sh((?:[ \t]+-\w+)+)")


def options_of_header(source: str) -> set[str]:
    """Return the letters of the options of `set` in the first line of a script: `#!/bin/bash -ea`."""
    header = _HEADER.match(source)
    return {letter for letter in header[1] if letter in OPTIONS} if header else set()


@dataclass
class Presence:
    """What is there for certain, and what is not.

    `is_there` is None if the script runs on another machine: nothing is certain then.

    `is_login`: bash has read the user's profile. `is_batch`: a batch system starts the script.
    `expands_aliases`: its shell does. `is_here`: the job runs on this machine. `bin` is the folder of the
    job's interpreter. `absent` states what the last test looked for and what does not exist. `unread` is what
    could not be followed.
    """

    scope: Scope
    files: MadeFiles
    unread: list[str]
    is_there: Callable[[str], bool] | None = None
    is_login: bool = False
    is_batch: bool = False
    is_here: bool = False
    expands_aliases: bool = False
    bin: str = ""
    absent: str = field(default="", init=False)

    def read_header(self, source: str) -> None:
        """Take from the text of a script how it is started."""
        self.is_login = self.is_login or _LOGIN.match(source) is not None
        self.is_batch = self.is_batch or _BATCH.search(source) is not None
        self.expands_aliases = self.expands_aliases or _EXPANDS.match(source) is not None

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
        if unknown or not _programs(self.files.calls) <= _CHANGES_NONE:
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
        known = self.is_here and not self.is_batch and _INSTALLED.match(str(path))
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

    def not_found(self, name: str | None) -> str:
        """Return bash's error for a command of the user's shell that this script lacks; "" for all others."""
        if name is None or name not in _NOT_EXPORTED or self.is_batch or self.unread or self.is_there is None:
            return ""
        if self.may_be_exported(name) or self.may_have_brought(name):
            return ""
        folders = self._search_path()
        known = any(folders) and not self._is_in(folders, name)
        return f"{name}: command not found" if known else ""

    def spaced_assignment(self, argv: Sequence[Argument]) -> str:
        """Return bash's error for an assignment with a space before its sign; "" for all other commands.

        Bash takes the name for a program.
        """
        name, sign = argv[0].text or "", argv[1].text if len(argv) > 1 else None
        state = self.scope.state
        may_be_found = "PATH" in state.variables or "command_not_found_handle" in state.functions
        is_name = name.isascii() and name.isidentifier()
        if sign is None or not sign.startswith("=") or not is_name or may_be_found:
            return ""
        return self._unless_known(name)

    def only_an_alias(self, name: str | None) -> str:
        """Return bash's error for a name that the script gives only to an alias.

        Bash does not expand aliases in scripts. "" for all other names.
        """
        if name not in self.scope.state.unexpanded or name is None or self.is_there is None or self.unread:
            return ""
        if self.expands_aliases or self.is_login or self.may_be_exported(name) or self.may_have_brought(name):
            return ""
        return self._unless_known(name)

    def _unless_known(self, name: str) -> str:
        """Return bash's error for a name that neither bash nor the search path has; "" for all others."""
        folders = (*filter(None, [self.bin]), *self._search_path())
        return "" if name in _OF_BASH or self._is_in(folders, name) else f"{name}: command not found"

    def may_have_called_functions(self) -> bool:
        """Return whether a command so far may be a function of the user's shell.

        It may set any variable (`module load`).
        """
        folders = self._search_path()

        def is_program(name: str | None) -> bool:
            if name is None or name in _FUNCTIONS:
                return False
            return "/" in name or self.is_there is None or self._is_in(folders, name)

        return self.is_login or not all(is_program(name) for name in _programs(self.files.calls))

    def lacks_program(self, name: str, commands: Container[str]) -> bool:
        """Return whether this machine, on which the job runs, certainly has no such program.

        `commands` are the shell's own.
        """
        if not self.is_here or self.is_there is None or "/" in name or self.is_batch or self.unread:
            return False
        if name in _OF_BASH or name in commands or name in self.scope.state.functions:
            return False
        if self.may_be_exported(name) or self.may_have_called_functions() or self.may_have_brought(name):
            return False
        return self.bin != "" and not self._is_in((self.bin, *self._search_path()), name)

    def may_be_exported(self, name: str) -> bool:
        """Return whether the shell that starts the script may give it a function of this name."""
        environ = self.scope.state.environ
        return "BASH_ENV" in environ or any(key.startswith(f"BASH_FUNC_{name}") for key in environ)

    def may_match_others(self, pattern: str) -> bool:
        """Return whether a pattern may match other files when the script runs."""
        folder = pattern.rpartition("/")[0]
        path = self._whole(folder)
        unknown = not self._cwd or glob.has_magic(folder) or self.is_of_machine(path)
        changed = not _programs(self.files.calls) <= _CHANGES_NONE or any(
            _CHANGES.search(script) for script in self.files.substituted
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

    def may_have_brought(self, name: str, before: Call | None = None) -> bool:
        """Return whether the script may have made available a command that the starting shell lacks.

        It may have done so `before` a call. The starting shell is the one that starts the script.
        """
        state = self.scope.state
        if "PATH" in state.variables or state.aliases or "command_not_found_handle" in state.functions:
            return True
        calls = self._calls(before)
        return (
            not all(
                program is not None and Path(program).name in _BRINGS_NONE for program in _programs(calls)
            )
            or any(_BRINGS.search(script) for script in self.files.substituted)
            or any(
                number <= len(calls) and (place == ANYWHERE or Path(place).name == name)
                for number, place in self.files.made
            )
        )

    def may_have_installed(self, path: Path) -> bool:
        """Return whether a program so far may have put this where no argument shows it.

        Installers write to homes and to /opt.
        """
        own = (Path(self._cwd), self._folder_of_script)
        home = _is_below(path, self._home) and not any(_is_below(path, folder) for folder in own)
        if not home and not _INSTALLED.match(str(path)):
            return False
        names = {None if name is None else Path(name).name for name in _programs(self.files.calls)}
        return not names <= _INSTALLS_NONE or any(_BRINGS.search(script) for script in self.files.substituted)

    def _calls(self, before: Call | None = None) -> list[Call]:
        return list(itertools.takewhile(lambda call: call is not before, self.files.calls))

    def _is_in(self, folders: Iterable[str], name: str) -> bool:
        return self.is_there is not None and any(self.is_there(f"{folder}/{name}") for folder in folders)

    def _search_path(self) -> list[str]:
        return self.scope.state.environ.get("PATH", "").split(os.pathsep)

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


def _programs(calls: Iterable[Call]) -> set[str | None]:
    """Return the names of the programs that were called, without those that only look for a program."""
    return {call.argv[0].text for call in calls if not is_query([word.text for word in call.argv])}
