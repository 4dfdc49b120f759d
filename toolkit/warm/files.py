"""The files that a warm-up reads, in the order of a loader, each once even if it has several names.

For a model's folder these are configuration and tokenizer, then the weights that a loader reads
(`weight_files`).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.model.model import BadFile, is_pointer, read_json
from verl_doctor.toolkit.collectors.model.weight_files import (
    ENDINGS,
    INDEX,
    INDEX_OF_PICKLES,
    format_of,
    loaded,
    missing_shards,
)

_RANK = re.compile(r"model-rank-(\d{1,6})-part-|_world_size_\d+_rank_(\d{1,6})\.")
_MOST_FILES = 100_000  # about 50 MB of memory
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class WarmFile:
    """A file with content.

    `size` is in bytes; `device` and `inode` are those of the file itself, with all links resolved.
    """

    path: str
    size: int
    device: int
    inode: int


@dataclass(frozen=True)
class LeftOut:
    """A named path, or a file that belongs to one, that cannot be read."""

    path: str
    reason: str


@dataclass(frozen=True)
class Chosen:
    """The files in reading order, and those left out."""

    files: tuple[WarmFile, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(file.size for file in self.files)


def choose(model: Path | None, paths: Iterable[Path], ranks: Collection[int] = ()) -> Chosen:
    """Return the model's files, then those of the other paths.

    With `ranks`, files named after other ranks are left out.
    """
    walk = _Walk(ranks)
    if model is not None:
        walk.model(model)
    for path in paths:
        walk.path(path)
    return Chosen(tuple(walk.files), tuple(walk.left_out))


def rank_of(name: str) -> int | None:
    """Return the only rank that reads a file, according to its name; None for a file that all ranks read.

    vLLM's `sharded_state` has model-rank-0-part-0.safetensors, verl's checkpoints
    model_world_size_8_rank_0.pt.
    """
    found = _RANK.search(name)
    return int(found[1] or found[2]) if found else None


class _Walk:
    """The files found so far."""

    def __init__(self, ranks: Collection[int]) -> None:
        self.files: list[WarmFile] = []
        self.left_out: list[LeftOut] = []
        self._ranks = ranks
        self._seen: set[tuple[int, int]] = set()
        self._full = False

    def model(self, folder: Path) -> None:
        """Add the files that a loader opens in a model's folder, or the file of a single-file model."""
        if os.path.isfile(folder):
            self._add(str(folder), of_folder=False)
            return
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names alone
        except OSError as error:
            self._leave_out(str(folder), error.strerror or str(error))
            return
        weights, missing = _weights(folder, names)
        for name, counted_by in missing.items():
            self._leave_out(str(folder / name), f"{counted_by} it, but it does not exist")
        for name in weights:
            if why := _no_weights(folder / name):
                self._leave_out(str(folder / name), why)
        others = [name for name in names if not name.endswith(tuple(ENDINGS))]
        for name in (*sorted(others, key=_natural), *weights):
            self._add(f"{folder}/{name}", of_folder=True)

    def path(self, path: Path) -> None:
        """Add a file, or all files below a folder. Linked folders are not entered: they may form a cycle."""
        if not os.path.isdir(path):
            self._add(str(path), of_folder=False)
            return
        for folder, folders, names in os.walk(path, onerror=self._refused):
            folders.sort(key=_natural)
            for name in sorted(names, key=_natural):
                self._add(f"{folder}/{name}", of_folder=True)
            if self._full:
                return

    def _add(self, path: str, *, of_folder: bool) -> None:
        rank = rank_of(path.rpartition("/")[2])
        if self._full or (self._ranks and rank is not None and rank not in self._ranks):
            return
        try:
            seen = Path(path).stat()
        except OSError as error:
            self._leave_out(path, error.strerror or str(error))
            return
        if not stat.S_ISREG(seen.st_mode):
            if not of_folder:
                self._leave_out(path, "it is neither a file nor a folder")
            return
        if not seen.st_size or (seen.st_dev, seen.st_ino) in self._seen:
            return
        if not os.access(path, os.R_OK):
            self._leave_out(path, "no permission to read it")
            return
        if len(self.files) >= _MOST_FILES:
            self._full = True
            self._leave_out(path, f"it comes after {_MOST_FILES:,} others; warm single folders")
            return
        self._seen.add((seen.st_dev, seen.st_ino))
        self.files.append(WarmFile(path, seen.st_size, seen.st_dev, seen.st_ino))

    def _refused(self, error: OSError) -> None:
        self._leave_out(str(error.filename), error.strerror or str(error))

    def _leave_out(self, path: str, reason: str) -> None:
        self.left_out.append(LeftOut(path, reason))


def _weights(folder: Path, names: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """Return the files that a loader reads, and missing files of the same format with what refers to them."""
    files = loaded(names)
    index = INDEX if any(name.endswith(".safetensors") for name in files) or not files else INDEX_OF_PICKLES
    indexed = _indexed(folder, index)
    if indexed:
        missing = dict.fromkeys(sorted(indexed.difference(names), key=_natural), "the index names")
    else:
        missing = dict.fromkeys(missing_shards(files), "the names of the other shards imply")
    return sorted(loaded(names, indexed), key=_natural), missing


def _indexed(folder: Path, index: str) -> set[str]:
    """Return the shards that an index names; none if it does not exist or is invalid."""
    content = read_json(folder / index)
    shards = {} if isinstance(content, BadFile) else content.get("weight_map")
    if not isinstance(shards, dict):
        return set()
    return {name for name in shards.values() if isinstance(name, str) and format_of(name)}


def _no_weights(path: Path) -> str:
    """Return why a file named like weights contains none; "" if it may contain some or cannot be examined."""
    try:
        seen = path.stat()
    except OSError:
        return ""
    if not stat.S_ISREG(seen.st_mode):
        return "it is not a file"
    if not seen.st_size:
        return "it is empty"
    if is_pointer(path):
        return "a pointer of Git LFS, not the weights"
    return "" if seen.st_blocks else "it is sparse and was never written"


def _natural(name: str) -> list[str | int]:
    """Return a sort key that orders numbers by value, as vLLM does: shard 10 comes after shard 9."""
    return [int(part) if part.isdecimal() else part for part in _DIGITS.split(name)]
