"""Paths of the job's files that begin with an unset variable and do not exist without it.

It also covers settings that name such a variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.launch.driver_variable import driver_variable
from verl_doctor.toolkit.collectors.launch.launch import VARIABLE, Launch, LostAssignment, Word
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.shell.set_by_others import is_set_by_others

_READ = re.compile(
    r"[+]*((?:\w+\.)*(?:train_files|val_files|path|tokenizer_path|\w*_config_path|\w*_tool_path))=(.+)",
    re.DOTALL,
)
_NAMED = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)\s*\}")  # without a default
_AROUND = " '\"[]"


@dataclass(frozen=True)
class HollowPath:
    """A setting whose path becomes `path`, which does not exist, once the unset variables `names` are empty.

    `word` is the source text.
    """

    key: str
    path: str
    names: tuple[str, ...]
    word: Word


@dataclass(frozen=True)
class HollowPaths:
    """The hollow paths of the job's command, and its words that interpolate a variable the job lacks.

    `spaced` are the lines that were meant to assign to variables of hollow words, `not_exported` those that
    assign to them in a shell around the command's.
    """

    paths: tuple[HollowPath, ...] = ()
    lacking: tuple[Word, ...] = ()
    spaced: tuple[LostAssignment, ...] = ()
    not_exported: tuple[LostAssignment, ...] = ()


@collector(kept=True)
def hollow_paths(launch: Launch, machine: Machine) -> HollowPaths | Unknown:
    """Find the hollow paths that do not exist, and the variables that OmegaConf will not find."""
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    words = (
        () if launch.command is None or launch.unread else launch.command.words
    )  # what is not read may set anything
    lacking = tuple(
        word for word in words if any(_is_lacking(name, launch, machine) for name in variables_of(word))
    )
    paths = tuple(found for word in launch.hollow for found in _of(word))
    return HollowPaths(paths, lacking, launch.spaced, launch.not_exported)


def variables_of(word: Word) -> list[str]:
    """Return the variables that a word needs: those of `${oc.env:NAME}`."""
    return [] if word.conditional else _NAMED.findall(word.text or "")


def _is_lacking(name: str, launch: Launch, machine: Machine) -> bool:
    variable = driver_variable(name, machine.environ, launch)
    return variable.known and variable.value is None and not is_set_by_others(name)


def _of(word: Word) -> Iterator[HollowPath]:
    match = _READ.fullmatch(word.text or "")
    names = tuple(dict.fromkeys(VARIABLE.findall(word.written)))
    if match is None or not names:
        return
    for part in match[2].split(","):
        path = part.strip(_AROUND)
        if path.startswith("/") and not os.path.exists(path):
            yield HollowPath(match[1], path, names, word)
            return
