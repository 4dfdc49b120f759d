"""Paths of the job's files that begin with a variable which nobody sets, and that lead nowhere without it."""

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
    """A setting whose path is `path` once the variables `names`, which nobody sets, are empty. Nothing is there. `word` is as it is written."""

    key: str
    path: str
    names: tuple[str, ...]
    word: Word


@dataclass(frozen=True)
class HollowPaths:
    """Those of the job's command."""

    paths: tuple[HollowPath, ...] = ()


@collector(kept=True)
def hollow_paths(launch: Launch) -> HollowPaths | Unknown:
    """Look whether something exists anyway."""
    if launch.submitted:
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
