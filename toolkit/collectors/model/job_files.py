"""The paths that the job names: whether they exist, and enough about their contents to compare nodes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.data_files import DataFiles
from verl_doctor.toolkit.collectors.model.model import named_model
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import file_system_of
from verl_doctor.toolkit.target import Target

What = Literal["model", "data", "site"]

_MOST = 2000  # files of one folder: a model has one or two hundred


@dataclass(frozen=True)
class JobFile:
    """A path that the job names, on this machine.

    `state` is whether it exists. `files` and `size` (bytes) describe its contents: a folder's own files,
    without subfolders. `names` is a digest of their names and sizes, to compare two lists of shards.
    `changed` is the time of the latest write, in seconds since the epoch. `mount` is the type of the file
    system.
    """

    path: str
    what: What
    state: Literal["there", "missing", "unreadable"] = "there"
    files: int = 0
    size: int = 0
    names: str = ""
    changed: int = 0
    mount: str = ""


@dataclass(frozen=True)
class JobFiles:
    """Each path once."""

    files: tuple[JobFile, ...]


@collector()
def job_files(
    machine: Machine,
    target: Target,
    launch: Launch | Unknown,
    configuration: Configuration | Unknown,
    data: DataFiles | Unknown,
) -> JobFiles | Absent:
    """Check the model's folder and the data files without opening them."""
    model = named_model(machine, target, launch, configuration)
    named: list[tuple[Path, What]] = []
    if not isinstance(model, Unknown):
        named.append((model.folder, "model"))
    if not isinstance(data, Unknown):
        named += [(Path(file.path), "data") for file in data.files]
    if not named:
        return Absent("no model and no data file is named")
    return JobFiles(tuple(seen(path, what, machine) for path, what in dict.fromkeys(named)))


def seen(path: Path, what: What, machine: Machine) -> JobFile:
    """Check a path without opening any file."""
    try:
        found = sorted(islice(_files(path), _MOST))
    except FileNotFoundError:
        return JobFile(str(path), what, "missing")
    except OSError:
        return JobFile(str(path), what, "unreadable")
    system = file_system_of(machine, str(path))
    return JobFile(
        path=str(path),
        what=what,
        files=len(found),
        size=sum(size for _, size, _ in found),
        names=_digest(f"{name} {size}" for name, size, _ in found),
        changed=max((changed for _, _, changed in found), default=0),
        mount=system.kind if system else "",
    )


def _files(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yield name, size and time of a file, or of each file in a folder."""
    if not os.path.isdir(path):
        status = path.stat()
        yield path.name, status.st_size, int(status.st_mtime)
        return
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_file():
                status = entry.stat()
                yield entry.name, status.st_size, int(status.st_mtime)


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:12]
