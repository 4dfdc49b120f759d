"""The data files that the job would read: where they are, and whether their contents match their names."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit.collectors.configuration.beside import beside
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import given, launch_values
from verl_doctor.toolkit.collectors.configuration.roles import trains
from verl_doctor.toolkit.collectors.launch.launch import Launch, folder_of
from verl_doctor.toolkit.collectors.model.model import LFS_MARK
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.python.source import read
from verl_doctor.toolkit.system.errors import reason_of
from verl_doctor.toolkit.target import Target

Role = Literal["train", "val", "named"]
Trouble = Literal[
    "", "missing", "pointer", "empty", "folder", "special", "unreadable", "not parquet", "cut off"
]

_KEYS: tuple[tuple[str, Role], ...] = (("data.train_files", "train"), ("data.val_files", "val"))
_MAGIC = b"PAR1"  # Parquet begins and ends with it
_TALKS = "verl/utils/dataset/multiturn_sft_dataset.py"
_MOST = 200  # files of one pattern
_MOST_INSIDE = 2000  # files of one folder
_SMALLEST_PARQUET = 12  # bytes: both magics, and the length of the footer between them

_IGNORED = (".", "_")  # which pandas leaves out of a folder

_LEAVES = "hydra.job.chdir=True moves the job to another folder before it reads the file"


@dataclass(frozen=True)
class DataFile:
    """One file. `named_by` is the option or key that names it, `place` the launch file and line, if any.

    `beside` is the table that may have been meant: next to it, or in the named folder. `kind` is the
    extension, or parquet where the job reads every file as that. `trouble` is empty if its first and last
    bytes show no fault. `times` is how often it is listed: so often are its rows read. `inside` are the
    tables of a folder that is named in place of a table. `left_behind`: it is sound, and the job enters
    another folder before it reads it by its relative path.
    """

    path: str
    role: Role
    named_by: str
    kind: str
    trouble: Trouble = ""
    reason: str = ""
    place: str = ""
    line: int = 0
    beside: str = ""
    times: int = 1
    inside: tuple[str, ...] = ()
    left_behind: bool = False


@dataclass(frozen=True)
class DataFiles:
    """Every named file, once for each role.

    `elsewhere` are addresses on other file systems (`hdfs://...`).
    """

    files: tuple[DataFile, ...]
    elsewhere: tuple[str, ...] = ()


@collector()
def data_files(
    machine: Machine, target: Target, launch: Launch | Unknown, configuration: Configuration | Unknown
) -> DataFiles | Unknown:
    """Check the files named with --data and in the launch command."""
    if isinstance(launch, Launch) and launch.in_container and not target.data:
        return Absent("the job reads its data in a container or on another machine")
    here = folder_of(launch, machine.cwd)
    folders = (here, *(path.parent for path in target.files))
    leaves, only_parquet = _leaves_the_folder(configuration), _reads_only_parquet(configuration)
    named = [
        _looked_at(file, "named", "--data", "", 0, only_parquet=only_parquet)
        for path in target.data
        for file in (_inside(path) if only_parquet else [path])
    ]
    elsewhere: list[str] = []
    undetermined = ""
    values = launch_values(launch, configuration)
    for key, role in _KEYS:
        override = given(values, key)
        if override is None or _is_left_alone(configuration, key):
            continue
        if not override.known:
            undetermined = key
            continue
        for text in override.texts:
            if "://" in text:
                elsewhere.append(text)
            else:
                path = Path(os.path.normpath(here / machine.expanded(text)))
                found = [
                    _looked_at(
                        file, role, key, override.path, override.line, folders, only_parquet=only_parquet
                    )
                    for match in _matching(path)
                    for file in (_inside(match) if only_parquet and not text.endswith("/") else [match])
                ]
                moved = leaves and not Path(machine.expanded(text)).is_absolute()
                named += [_left_behind(file) for file in found] if moved else found
    if not named and undetermined:
        return Unknown(
            f"the value of {undetermined} cannot be determined from the launch script; name the file "
            "with --data"
        )
    if not named:
        where = f"the data are elsewhere: {elsewhere[0]}" if elsewhere else "no data file is named"
        return Absent(f"{where}; --data FILE, or data.train_files in the launch command")
    listed = Counter(named)  # one that is listed twice is read twice
    return DataFiles(tuple(replace(file, times=times) for file, times in listed.items()), tuple(elsewhere))


def _is_left_alone(configuration: Configuration | Unknown, key: str) -> bool:
    """Return whether a program that only generates or evaluates has verl's default there.

    Such a program reads one list of tables, which the command names.
    """
    return (
        isinstance(configuration, Configuration)
        and not trains(configuration)
        and configuration.override_of(key) is None
    )


def _leaves_the_folder(configuration: Configuration | Unknown) -> bool:
    """Return whether Hydra enters a folder of its own before the data are read.

    A cluster of Ray's may have been started elsewhere.
    """
    if isinstance(configuration, Unknown) or configuration.has("actor_rollout_ref"):
        return False
    if any(word.key.startswith(("hydra.run", "hydra.sweep")) for word in configuration.overrides):
        return False  # the folder may be the one where the job starts
    last = next((word for word in reversed(configuration.overrides) if word.key == "hydra.job.chdir"), None)
    return last is not None and last.value is True and not last.conditional


def _left_behind(file: DataFile) -> DataFile:
    """Return a file that the job does not find, as it has entered another folder."""
    return replace(file, trouble="missing", reason=_LEAVES, left_behind=not file.trouble)


def _reads_only_parquet(configuration: Configuration | Unknown) -> bool:
    """Return whether it is a fine-tuning job whose data set reads all files as Parquet, whatever the name."""
    if isinstance(configuration, Unknown) or configuration.has("actor_rollout_ref"):
        return False
    before, inside, _ = configuration.program.rpartition("/verl/trainer/")
    own = configuration.get("data.custom_cls.path")
    source = read(Path(before, _TALKS)) if inside and own in (None, MISSING) else None
    return isinstance(source, bytes) and b"pd.read_parquet(" in source and b"json" not in source


def _matching(path: Path) -> list[Path]:
    """Return the files that match a pattern, as `datasets` expands it; the path itself if it is none."""
    if os.path.exists(path) or not glob.has_magic(str(path)):
        return [path]
    found = list(islice(glob.iglob(str(path), recursive=True), _MOST))  # noqa: PTH207 - Path cannot match absolute patterns
    return [Path(name) for name in sorted(found)] or [path]


def _inside(path: Path) -> list[Path]:
    """Return the tables of a folder as pandas finds them; the path itself if it is a file or has none.

    Names with a dot or an underscore in front do not count.
    """
    if not os.path.isdir(path):
        return [path]
    found: list[Path] = []
    for folder, inner, names in os.walk(path, followlinks=True):
        inner[:] = sorted(name for name in inner if not name.startswith(_IGNORED))
        found += [Path(folder, name) for name in sorted(names) if not name.startswith(_IGNORED)]
        if len(found) > _MOST_INSIDE:
            break
    return found[:_MOST_INSIDE] or [path]


def _looked_at(
    path: Path,
    role: Role,
    named_by: str,
    place: str,
    line: int,
    folders: Sequence[Path] = (),
    *,
    only_parquet: bool = False,
) -> DataFile:
    kind = "parquet" if only_parquet else path.suffix.lower().lstrip(".")
    trouble, reason = _trouble(path, kind)
    meant = (
        beside(path, folders)
        if trouble == "missing"
        else _only_table(path, role)
        if trouble == "folder"
        else ""
    )
    tables = tuple(map(str, sorted(path.glob("*.parquet"))[:_MOST_INSIDE])) if trouble == "folder" else ()
    return DataFile(str(path), role, named_by, kind, trouble, reason, place, line, meant, inside=tables)


def _only_table(folder: Path, role: Role) -> str:
    """Return the only table in a folder that is named after its role; "" for none or more than one."""
    names = {"train": ("train",), "val": ("val", "test", "dev")}.get(role, ())
    found = (
        [path for path in sorted(folder.glob("*.parquet")) if path.stem.split("-")[0].startswith(names)]
        if names
        else []
    )
    exact = [path for path in found if path.stem in names]
    return str((exact or found)[0]) if len(exact or found) == 1 else ""


def _trouble(path: Path, kind: str) -> tuple[Trouble, str]:
    """Return the fault shown by a file's size, first and last bytes."""
    try:
        if os.path.isdir(path):
            return "folder", ""
        size = path.stat().st_size
        if not os.path.isfile(path):
            return "special", ""
        with path.open("rb") as file:
            first = file.read(len(LFS_MARK))
            file.seek(max(0, size - len(_MAGIC)))
            last = file.read()
    except FileNotFoundError:
        return "missing", next(_missing_part(path), "")
    except (OSError, ValueError) as error:
        return "unreadable", reason_of(error)
    if first == LFS_MARK:
        return "pointer", ""
    if size == 0:
        return "empty", ""
    if kind != "parquet":
        return "", ""
    if not first.startswith(_MAGIC):
        return "not parquet", ""
    return ("", "") if last == _MAGIC and size >= _SMALLEST_PARQUET else ("cut off", "")


def _missing_part(path: Path) -> Iterator[str]:
    """Yield the first missing folder of the path: the mistake is often further up."""
    for parent in reversed(path.parents):
        if not os.path.isdir(parent):
            yield f"there is no folder {parent}"
