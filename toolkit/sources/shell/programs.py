"""Programs and functions of the user's shell that a script calls and certainly lacks where it runs."""

from __future__ import annotations

import itertools
import os
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.sources.shell.called_programs import BRINGS, BRINGS_NONE, called_programs
from verl_doctor.toolkit.sources.shell.found import Argument, Call
from verl_doctor.toolkit.sources.shell.made_files import ANYWHERE
from verl_doctor.toolkit.sources.shell.presence import Presence
from verl_doctor.toolkit.sources.shell.start import Start

# Commands that are functions of the user's shell, also where a program has the same name, because they change
# variables.
_FUNCTIONS = frozenset({"module", "ml", "spack", "conda", "mamba", "micromamba", "pyenv", "nvm", "use"})
# Those that scripts do not have unless the shell that starts them exports them, or a program has the name.
_NOT_EXPORTED = frozenset({"module", "ml", "spack", "conda", "mamba", "micromamba"})
# What bash has itself (`compgen -bk`), besides the commands that are followed.
_OF_BASH = frozenset(
    [
        *(".", ":", "[", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "command"),
        *("compgen", "complete", "compopt", "continue", "declare", "dirs", "disown", "echo"),
        *("enable", "eval", "exec", "exit", "export", "false", "fc", "fg", "getopts", "hash", "help"),
        *("history", "jobs", "kill", "let", "local", "logout", "mapfile", "popd", "printf", "pushd"),
        *("pwd", "read", "readarray", "readonly", "return", "set", "shift", "shopt", "source"),
        *("suspend", "test", "times", "trap", "true", "type", "typeset", "ulimit", "umask"),
        *("unalias", "unset", "wait", "if", "then", "else", "elif", "fi", "case", "esac", "for"),
        *("select", "while", "until", "do", "done", "in", "function", "time", "{", "}", "!", "[["),
        *("]]", "coproc"),
    ]
)


@dataclass
class Programs:
    """What the script can call for certain, and what it cannot. `unread` is what could not be followed."""

    presence: Presence
    start: Start
    unread: list[str]

    def not_found(self, name: str | None) -> str:
        """Return bash's error for a command of the user's shell that this script lacks; "" for all others."""
        if (
            name is None
            or name not in _NOT_EXPORTED
            or self.start.is_batch
            or self.unread
            or self.presence.is_there is None
        ):
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
        state = self.presence.scope.state
        may_be_found = "PATH" in state.variables or "command_not_found_handle" in state.functions
        is_name = name.isascii() and name.isidentifier()
        if sign is None or not sign.startswith("=") or not is_name or may_be_found:
            return ""
        return self._unless_known(name)

    def only_an_alias(self, name: str | None) -> str:
        """Return bash's error for a name that the script gives only to an alias.

        Bash does not expand aliases in scripts. "" for all other names.
        """
        if (
            name not in self.presence.scope.state.unexpanded
            or name is None
            or self.presence.is_there is None
            or self.unread
        ):
            return ""
        if (
            self.start.expands_aliases
            or self.start.is_login
            or self.may_be_exported(name)
            or self.may_have_brought(name)
        ):
            return ""
        return self._unless_known(name)

    def may_have_called_functions(self) -> bool:
        """Return whether a command so far may be a function of the user's shell.

        It may set any variable (`module load`).
        """
        folders = self._search_path()

        def is_program(name: str | None) -> bool:
            if name is None or name in _FUNCTIONS:
                return False
            return "/" in name or self.presence.is_there is None or self._is_in(folders, name)

        return self.start.is_login or not all(
            is_program(name) for name in called_programs(self.presence.files.calls)
        )

    def lacks_program(self, name: str, commands: Container[str]) -> bool:
        """Return whether this machine, on which the job runs, certainly has no such program.

        `commands` are the shell's own.
        """
        if (
            not self.start.is_here
            or self.presence.is_there is None
            or "/" in name
            or self.start.is_batch
            or self.unread
        ):
            return False
        if name in _OF_BASH or name in commands or name in self.presence.scope.state.functions:
            return False
        if self.may_be_exported(name) or self.may_have_called_functions() or self.may_have_brought(name):
            return False
        return self.start.bin != "" and not self._is_in((self.start.bin, *self._search_path()), name)

    def place(self, name: str) -> str | None:
        """Return the path of the program that a call of this name certainly starts; None if it may differ."""
        unsure = (
            not self.start.is_here or self.start.is_batch or self.unread or "/" in name or name in _OF_BASH
        )
        if unsure or self.may_be_exported(name) or self.may_have_called_functions():
            return None
        if name in self.presence.scope.state.functions or self.may_have_brought(name):
            return None
        folders = (*filter(None, [self.start.bin]), *self._search_path())
        return next((f"{folder}/{name}" for folder in folders if self._is_in([folder], name)), None)

    def may_be_exported(self, name: str) -> bool:
        """Return whether the shell that starts the script may give it a function of this name."""
        environ = self.presence.scope.state.environ
        return "BASH_ENV" in environ or any(key.startswith(f"BASH_FUNC_{name}") for key in environ)

    def may_have_brought(self, name: str, before: Call | None = None) -> bool:
        """Return whether the script may have made available a command that the starting shell lacks.

        It may have done so `before` a call. The starting shell is the one that starts the script.
        """
        state = self.presence.scope.state
        if "PATH" in state.variables or state.aliases or "command_not_found_handle" in state.functions:
            return True
        calls = self._calls(before)
        return (
            not all(
                program is not None and Path(program).name in BRINGS_NONE
                for program in called_programs(calls)
            )
            or any(BRINGS.search(script) for script in self.presence.files.substituted)
            or any(
                number <= len(calls) and (place == ANYWHERE or Path(place).name == name)
                for number, place in self.presence.files.made
            )
        )

    def _unless_known(self, name: str) -> str:
        """Return bash's error for a name that neither bash nor the search path has; "" for all others."""
        folders = (*filter(None, [self.start.bin]), *self._search_path())
        return "" if name in _OF_BASH or self._is_in(folders, name) else f"{name}: command not found"

    def _calls(self, before: Call | None = None) -> list[Call]:
        return list(itertools.takewhile(lambda call: call is not before, self.presence.files.calls))

    def _is_in(self, folders: Iterable[str], name: str) -> bool:
        return self.presence.is_there is not None and any(
            self.presence.is_there(f"{folder}/{name}") for folder in folders
        )

    def _search_path(self) -> list[str]:
        return self.presence.scope.state.environ.get("PATH", "").split(os.pathsep)
