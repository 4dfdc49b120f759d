"""What following a script finds: programs it calls, with their words; texts; and what bash refuses."""

from __future__ import annotations

from dataclasses import dataclass

from verl_doctor.toolkit.sources.shell.hurdle import Hurdle
from verl_doctor.toolkit.sources.shell.state import EnvironmentChange


@dataclass(frozen=True)
class Argument:
    """A word of a program's command line.

    `text` is None when it cannot be determined, `written` is as in the script.

    `conditional`: it exists only under a condition. `rest` are the other elements of an array without an
    index, of which bash passes the first alone.
    """

    text: str | None
    path: str
    line: int
    written: str
    conditional: bool = False
    rest: tuple[Argument, ...] = ()


@dataclass(frozen=True)
class Lines:
    """A text that a script contains or prints, or that of a file: where its first line is written."""

    text: str
    path: str
    line: int = 1


@dataclass(frozen=True)
class Call:
    """A program that is called: `argv[0]` is its name. `changes` are the environment changes made until then.

    `folder` is where it starts, "" where unknown. `written` are the files that its output goes to, `stdin` is
    what it reads, `limits` are the words of each `ulimit` until then. `forgotten`: it may have other
    variables, too. `doubts` is the number of enclosing conditions, and of places at which its failure is
    handled. `background`: the script goes on beside it (`&`).
    """

    argv: tuple[Argument, ...]
    changes: tuple[EnvironmentChange, ...]
    conditional: bool
    folder: str = ""
    written: tuple[str, ...] = ()
    stdin: Lines | None = None
    limits: tuple[tuple[str, ...], ...] = ()
    forgotten: bool = False
    doubts: int = 0
    background: bool = False


@dataclass(frozen=True)
class Stop:
    """What bash refuses while it runs a script, with its message.

    `whole`: the script ends there, else one command or list of commands.

    `extended` is an unset variable that the command only extends. `lacks_arguments`: the script ends because
    it gets none. `hurdle` is what bash stumbles over, `name` the variable, folder or file concerned.
    """

    path: str
    line: int
    message: str
    whole: bool = True
    extended: str = ""
    lacks_arguments: bool = False
    hurdle: Hurdle = ""
    name: str = ""
