"""The weight files of a model: how they are kept, how large they are, what their headers and the index say. No weight is read.

https://huggingface.co/docs/safetensors: eight bytes with the length of a JSON header, which has the kind, the shape and the
place of each tensor. The reader of the format refuses a file that ends elsewhere than its last tensor.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from verl_doctor.toolkit.fact_model import INDEX, BadFile, Model, is_pointer, read_json
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.turns import TURNS

Format = Literal["safetensors", "pickle", "gguf"]

_FORMATS: Mapping[str, Format] = {
    ".safetensors": "safetensors",
    ".bin": "pickle",
    ".pt": "pickle",
    ".pth": "pickle",
    ".gguf": "gguf",
}
# Pickles that a trainer leaves beside the weights (vllm filter_files_not_needed_for_inference).
_NO_WEIGHTS = (
    "training_args.bin",
    "optimizer.bin",
    "optimizer.pt",
    "scheduler.pt",
    "scaler.pt",
    "rng_state.pth",
)
_LONGEST_HEADER = 100_000_000  # bytes, as the format has it
_MOST_FILES = 1000
_MOST_NAMES = 5  # of tensors, as examples
_READERS = 8  # headers that are read at once: each is three round trips on a network file system
_PATIENCE = 3.0  # seconds for all headers


@dataclass(frozen=True)
class WeightFile:
    """A file, `size` bytes long. What a header says is empty for other formats, and for a header that was not read.

    `ends` is where the last tensor ends in the file, `kinds` how many bytes the tensors of each kind ("BF16") take, `trouble`
    why the file cannot be read, `linked` whether it is a link, as in the cache of the model hub.
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
    """The weight files of a folder, in order, and what the index of the shards says, where there is one.

    `indexed` names the shards of the index. `lost` are tensors of the index that none of its shards holds (not told when a
    header could not be read), `twice` those that two of them hold: as many as `lost_count` and `twice_count` say, of which the
    first are named, each with the shard of the index.
    """

    folder: str
    files: tuple[WeightFile, ...]
    indexed: tuple[str, ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    lost_count: int = 0
    twice: tuple[tuple[str, str], ...] = ()
    twice_count: int = 0

    def of(self, *formats: Format) -> tuple[WeightFile, ...]:
        """The files of some formats."""
        return tuple(file for file in self.files if file.format in formats)

    @property
    def loaded(self) -> tuple[WeightFile, ...]:
        """What is read when the model is loaded: the shards of the index, else all safetensors, else what there is."""
        weights = self.of("safetensors")
        named = tuple(file for file in weights if file.name in self.indexed)
        return named or weights or self.files

    @property
    def bytes(self) -> int:
        """How large the files are that are read when the model is loaded."""
        return sum(file.size for file in self.loaded)


@collector(timeout=10)
def model_files(model: Model) -> ModelFiles | Unknown:
    """List the weights, and read the header of each and the index."""
    folder = Path(model.folder)
    try:
        files = list(_weight_files(folder))
    except OSError as error:
        return Unknown(f"{folder} cannot be listed: {error.strerror}")
    if not files:
        return Absent(f"{folder} holds no weights")
    with TURNS.waiting(), ThreadPoolExecutor(_READERS) as pool:
        deadline = time.monotonic() + _PATIENCE
        read = list(pool.map(lambda file: _with_header(folder, file, deadline), files))
    index = read_json(folder / INDEX)
    weight_map = {} if isinstance(index, BadFile) else index.get("weight_map")
    found = ModelFiles(str(folder), tuple(file for file, _ in read))
    return _with_index(found, {file.name: names for file, names in read if names is not None}, weight_map)


def _weight_files(folder: Path) -> Iterator[WeightFile]:
    """The files whose names say that they are weights, with their sizes."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries[:_MOST_FILES]:
        kind = _FORMATS.get(Path(entry.name).suffix)
        if kind is None or entry.name.endswith(_NO_WEIGHTS) or entry.is_dir():
            continue
        linked = entry.is_symlink()
        try:
            yield WeightFile(entry.name, kind, entry.stat().st_size, linked=linked)
        except OSError as error:
            lost = "it is a link that leads nowhere" if linked else error.strerror or str(error)
            yield WeightFile(entry.name, kind, 0, trouble=lost, linked=linked)


def _with_header(folder: Path, file: WeightFile, deadline: float) -> tuple[WeightFile, frozenset[str] | None]:
    """A file with what its header says, and the names of its tensors; None where these are not known."""
    if file.format != "safetensors" or file.trouble or time.monotonic() > deadline:
        return file, None
    path = folder / file.name
    try:
        header, start = _header(path, file.size)
        tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
        kinds: Counter[str] = Counter()
        for tensor in tensors.values():
            begin, end = tensor["data_offsets"]
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
        # A pointer of Git LFS is another rule's.
        return (file if is_pointer(path) else replace(file, trouble="its header cannot be understood")), None


def _header(path: Path, size: int) -> tuple[Mapping[str, Any], int]:
    """The header of a file, and where the tensors begin. Raises ValueError where there is none."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 0 < length <= min(_LONGEST_HEADER, size - 8):
            raise ValueError("this is no header")
        return json.loads(file.read(length)), 8 + length


def _with_index(found: ModelFiles, held: Mapping[str, frozenset[str]], weight_map: object) -> ModelFiles:
    """Compare the index with what the shards hold, as far as their headers were read."""
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
