"""The weight files of a model: their format and size, and the contents of their headers and the index.

No weight is read.

https://huggingface.co/docs/safetensors: eight bytes with the length of a JSON header, which holds the type,
shape and position of each tensor. The reader of the format refuses a file that does not end with its last
tensor.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.model.model import BadFile, Model, is_pointer, read_json
from verl_doctor.toolkit.collectors.model.weight_files import INDEX, Format, format_of, loaded
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.process.collector_lock import TURNS

_LONGEST_HEADER = 100_000_000  # bytes, the limit of the format
_MOST_OF_A_HEADER = (
    16 * 1024 * 1024
)  # bytes read of it: a header of 100,000 tensors has 11 MB, and Python needs 25 times that
_MOST_FILES = 1000
_MOST_NAMES = 5  # of tensors, as examples
_READERS = 8  # headers read at once: each takes three round trips on a network file system
OPEN_TIMEOUT = 3.0
"""Seconds for all files of a model: opening each takes a round trip on a network file system."""


@dataclass(frozen=True)
class WeightFile:
    """A file of `size` bytes. Fields from the header are empty for other formats and for an unread header.

    `ends` is where the last tensor ends in the file, `kinds` how many bytes the tensors of each type ("BF16")
    take, `trouble` why the file cannot be read, `linked` whether it is a link, as in the cache of the model
    hub.
    """

    name: str
    format: Format
    size: int
    parameters: int = 0
    ends: int | None = None
    kinds: Mapping[str, int] = field(default_factory=dict)
    trouble: str = ""
    linked: bool = False


@dataclass(frozen=True)
class ModelFiles:
    """The weight files of a folder, in order, and the contents of the index of shards, if there is one.

    `indexed` names the shards of the index. `lost` are tensors of the index that no shard holds (empty if a
    header could not be read), `twice` those that two shards hold. `lost_count` and `twice_count` are their
    totals; only the first are named, each with its shard in the index.
    """

    folder: str
    files: tuple[WeightFile, ...]
    indexed: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    lost_count: int = 0
    twice: tuple[tuple[str, str], ...] = ()
    twice_count: int = 0

    def of(self, *formats: Format) -> tuple[WeightFile, ...]:
        """Return the files in the given formats."""
        return tuple(file for file in self.files if file.format in formats)

    @property
    def index(self) -> str:
        """Return the path of the index, even if it does not exist."""
        return f"{self.folder}/{INDEX}"

    @property
    def loaded(self) -> tuple[WeightFile, ...]:
        """Return the files that are read when the model is loaded."""
        names = loaded((file.name for file in self.files), self.indexed)
        return tuple(file for file in self.files if file.name in names)

    @property
    def bytes(self) -> int:
        """Return the total size of the files that are read when the model is loaded."""
        return sum(file.size for file in self.loaded)


@collector(timeout=10)
def model_files(model: Model) -> ModelFiles | Unknown:
    """List the weights, and read each header and the index."""
    folder = Path(model.folder)
    try:
        files = list(_weight_files(folder))
    except OSError as error:
        return Unknown(f"{folder} cannot be listed: {error.strerror}")
    if not files:
        return Absent(f"{folder} contains no weights")
    with TURNS.waiting(), ThreadPoolExecutor(_READERS) as pool:
        deadline = time.monotonic() + OPEN_TIMEOUT
        read = list(pool.map(lambda file: _with_header(folder, file, deadline), files))
    index = read_json(folder / INDEX)
    weight_map = {} if isinstance(index, BadFile) else index.get("weight_map")
    found = ModelFiles(str(folder), tuple(file for file, _ in read))
    return _with_index(found, {file.name: names for file, names in read if names is not None}, weight_map)


def _weight_files(folder: Path) -> Iterator[WeightFile]:
    """Yield the files with names of weights, with their sizes."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries[:_MOST_FILES]:
        kind = format_of(entry.name)
        if kind is None:
            continue
        linked = entry.is_symlink()
        try:
            seen = entry.stat()
            if stat.S_ISREG(seen.st_mode):  # others are reported with the model's folder
                yield WeightFile(entry.name, kind, seen.st_size, linked=linked)
        except OSError as error:
            lost = "it is a broken link" if linked else error.strerror or str(error)
            yield WeightFile(entry.name, kind, 0, trouble=lost, linked=linked)


def _with_header(folder: Path, file: WeightFile, deadline: float) -> tuple[WeightFile, frozenset[str] | None]:
    """Return a file with the data of its header, and the names of its tensors; None if they are unknown."""
    if file.format != "safetensors" or file.trouble or time.monotonic() > deadline:
        return file, None
    if not file.size:
        return replace(file, trouble="it is empty"), None
    path = folder / file.name
    try:
        header, start = _header(path, file.size)
        if header is None:
            return file, None
        tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
        kinds: Counter[str] = Counter()
        for tensor in tensors.values():
            begin, end = _place(tensor["data_offsets"])
            kinds[str(tensor["dtype"])] += end - begin
        known = replace(
            file,
            parameters=sum(math.prod(tensor["shape"]) for tensor in tensors.values()),
            ends=start + max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0),
            kinds=dict(kinds),
        )
        return known, frozenset(tensors)
    except OSError as error:
        return replace(file, trouble=error.strerror or str(error)), None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # Another rule reports a Git LFS pointer.
        return (file if is_pointer(path) else replace(file, trouble="its header is invalid")), None


def _place(offsets: Any) -> tuple[int, int]:
    """Return where a tensor begins and ends. Raises ValueError if that is not a position in a file."""
    begin, end = offsets
    if type(begin) is not int or type(end) is not int or not 0 <= begin <= end:
        raise ValueError("this is not a position")
    return begin, end


def _header(path: Path, size: int) -> tuple[Mapping[str, Any] | None, int]:
    """Return the header of a file, None if it is too long to read, and where the tensors begin.

    Raises ValueError if there is no header.
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(_LONGEST_HEADER, size - 8):
            raise ValueError("this is not a header")
        if length > _MOST_OF_A_HEADER:
            return None, 8 + length
        return json.loads(file.read(length)), 8 + length


def _with_index(found: ModelFiles, held: Mapping[str, frozenset[str]], weight_map: object) -> ModelFiles:
    """Compare the index with the contents of the shards whose headers were read."""
    if not isinstance(weight_map, dict) or not weight_map:
        return found
    where = {str(tensor): str(shard) for tensor, shard in weight_map.items()}
    shards = dict.fromkeys(where.values())
    several = Counter(tensor for shard in shards for tensor in held.get(shard, ()))
    lost = [pair for pair in where.items() if pair[0] not in several] if shards.keys() <= held.keys() else []
    twice = [(tensor, where.get(tensor, "")) for tensor, number in several.items() if number > 1]
    return replace(
        found,
        indexed=tuple(sorted(shards)),
        lost=_first(lost),
        lost_count=len(lost),
        twice=_first(twice),
        twice_count=len(twice),
    )


def _first(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(pairs)[:_MOST_NAMES])
