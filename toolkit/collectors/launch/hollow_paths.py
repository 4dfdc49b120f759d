"""Paths of the job's files that begin with an unset variable and do not exist without it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.facts import Absent, Unknown, collector

_READ = re.compile(
    r"[+]*((?:\w+\.)*(?:train_files|val_files|path|tokenizer_path|\w*_config_path|\w*_tool_path))=(.+)",
    re.DOTALL,
)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_AROUND = " '\"[]"


@dataclass(frozen=True)
class HollowPath:
    """A setting whose path becomes `path`, which does not exist, once the unset variables `names` are empty. `word` is the source text."""

    key: str
    path: str
    names: tuple[str, ...]
    word: Word


@dataclass(frozen=True)
class HollowPaths:
    """The hollow paths of the job's command."""

    paths: tuple[HollowPath, ...] = ()


@collector(kept=True)
def hollow_paths(launch: Launch) -> HollowPaths | Unknown:
    """Find the hollow paths that do not exist."""
    if launch.is_elsewhere:
        return Absent("the job runs on another machine")
    return HollowPaths(tuple(found for word in launch.hollow for found in _of(word)))


def _of(word: Word) -> Iterator[HollowPath]:
    match = _READ.fullmatch(word.text or "")
    names = tuple(dict.fromkeys(_VARIABLE.findall(word.written)))
    if match is None or not names:
        return
    for part in match[2].split(","):
        path = part.strip(_AROUND)
        if path.startswith("/") and not os.path.exists(path):
            yield HollowPath(match[1], path, names, word)
            return
