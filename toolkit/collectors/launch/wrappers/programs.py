"""What a command line starts: a Python program or a shell, and how their names are recognised."""

from __future__ import annotations

import re
from dataclasses import dataclass

from verl_doctor.toolkit.sources.shell.found import Argument, Lines

PYTHON = re.compile(r"(?:pypy|python)[\d.]*")
SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
ASSIGNED = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True)
class PythonProgram:
    """A Python module ("verl.trainer.main_ppo") or the path of a script, and its arguments.

    `launcher` are the words of a process launcher with its options (`torchrun --nproc_per_node=8 -m`), empty
    for plain Python. `uses` are the names in the Python text that starts the module, as if each was called.
    `opens` is what Python or torchrun opens as the source of a program instead: a Python between torchrun and
    the module, an option behind a long dash, a module without `-m`.
    """

    module: str
    words: tuple[Argument, ...]
    launcher: tuple[Argument, ...] = ()
    uses: str = ""
    opens: str = ""


@dataclass(frozen=True)
class ShellProgram:
    """A shell with a command text (`bash -c text`) or the path of a script, and its arguments.

    `read`: it is text from the input.

    `session` is the terminal into which the text is typed, whose shell goes on.
    """

    text: str | None
    path: str | None
    words: tuple[Argument, ...]
    read: Lines | None = None
    session: str = ""


def name_of(word: Argument) -> str:
    """Return the name of a program without its folder."""
    return (word.text or "").rpartition("/")[2]


def starts_program(word: Argument) -> bool:
    """Return whether a word is a Python, a shell or a launcher."""
    name = name_of(word)
    is_shell = name in SHELLS
    return is_shell or PYTHON.fullmatch(name) is not None or name in ("torchrun", "accelerate", "ray")
