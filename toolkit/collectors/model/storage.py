"""The file system of the model's weights, how it is mounted, and how much of them is cached.

The cache is the page cache. No weight is read.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.model.files import OPEN_TIMEOUT, ModelFiles
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.process.collector_lock import TURNS
from verl_doctor.toolkit.system.file_systems import file_system_of, read_ahead
from verl_doctor.toolkit.system.page_cache import Residency, residency

# Mount options that affect reading: nfs(5), and 9p in the kernel's documentation.
_TELLING = ("rsize", "nconnect", "vers", "proto", "noac", "fsc", "msize", "cache")
_COPIES = "/dev/shm/verl-cache"  # noqa: S108 - it is looked at, not written to
_READERS = 8
_MOST_PAGE_BY_PAGE = 1 << 30  # bytes checked if only mincore reports


@dataclass(frozen=True)
class ModelStorage:
    """The file system of the weights, as the kernel reports it: `kind` is "" if it does not.

    `shared`: other machines see it too, over a network; `in_memory`: it is memory. `options` are the mount
    options that affect reading. `read_ahead` is in bytes, `rotational` as the block device reports it
    (virtual ones are often wrong), None if unknown. `bytes` is the size of the loaded files, `cached` how
    much of it is in the page cache; None if unknown, with the reason in `undetermined`. `in_shared_memory`:
    verl has copied the weights there before (`use_shm`) and would use that copy.
    """

    folder: str
    kind: str
    mounted_on: str = ""
    device: str = ""
    shared: bool = False
    in_memory: bool = False
    options: tuple[str, ...] = ()
    read_ahead: int | None = None
    rotational: bool | None = None
    bytes: int = 0
    cached: int | None = None
    undetermined: str = ""
    in_shared_memory: bool = False

    @property
    def cold(self) -> int:
        """Return the bytes that must come from the disk; all if the kernel does not report."""
        return 0 if self.in_memory else self.bytes - (self.cached or 0)

    @property
    def where(self) -> str:
        """Describe the file system: "nfs4 (/models)"."""
        return (
            f"{self.kind} ({self.mounted_on})" if self.kind else "a file system that the kernel does not name"
        )


@collector(timeout=10)
def model_storage(machine: Machine, files: ModelFiles) -> ModelStorage:
    """Query the kernel about the mount and each file."""
    paths = [f"{files.folder}/{file.name}" for file in files.loaded if file.size]
    mount = file_system_of(machine, paths[0] if paths else files.folder)
    cached, undetermined = _cached(paths, files.bytes)
    copied = _copied(machine, files)
    if mount is None:
        return ModelStorage(
            files.folder,
            "",
            bytes=files.bytes,
            cached=cached,
            undetermined=undetermined,
            in_shared_memory=copied,
        )
    return ModelStorage(
        files.folder,
        mount.kind,
        mount.mounted_on,
        mount.device,
        mount.shared,
        mount.in_memory,
        tuple(dict.fromkeys(option for option in mount.options if option.split("=")[0] in _TELLING)),
        read_ahead(machine, mount.number),
        _rotational(machine, mount.number),
        files.bytes,
        cached,
        undetermined,
        copied,
    )


def _copied(machine: Machine, files: ModelFiles) -> bool:
    """Return whether all weights are where verl copies them, each as large as the original.

    The copying function is copy_to_shm in verl/utils/fs.py.
    """
    name = hashlib.md5(os.path.abspath(files.folder).encode(), usedforsecurity=False).hexdigest()
    copy = machine.at(f"{_COPIES}/{name}") / Path(files.folder).name
    try:
        return all((copy / file.name).stat().st_size == file.size for file in files.files)
    except OSError:
        return False


def _rotational(machine: Machine, number: str) -> bool | None:
    for path in (f"/sys/dev/block/{number}", f"/sys/dev/block/{number}/.."):
        text = (machine.read(f"{path}/queue/rotational") or "").strip()
        if number and text in {"0", "1"}:
            return text == "1"
    return None


def _cached(paths: Sequence[str], size: int) -> tuple[int | None, str]:
    """Return how many bytes of the files are cached; or None and the reason."""
    deadline = time.monotonic() + OPEN_TIMEOUT

    def look(path: str) -> Residency | Unknown:
        if time.monotonic() > deadline:
            return Unknown(f"the {len(paths)} files could not be opened within {OPEN_TIMEOUT:.0f} s")
        try:
            file = os.open(path, os.O_RDONLY)
        except OSError as error:
            return Unknown(f"{path} cannot be opened: {error.strerror}")
        try:
            most = int(os.fstat(file).st_size / max(size, 1) * _MOST_PAGE_BY_PAGE)
            return residency(file, most=most)
        except OSError as error:
            return Unknown(f"the kernel does not report what is cached of {path}: {error.strerror}")
        finally:
            os.close(file)

    with TURNS.waiting(), ThreadPoolExecutor(_READERS) as pool:
        found = list(pool.map(look, paths))
    if undetermined := next((residency.reason for residency in found if isinstance(residency, Unknown)), ""):
        return None, undetermined
    held = sum(residency.share * residency.size for residency in found if isinstance(residency, Residency))
    return min(int(held), size), ""
