"""Which files of a model's folder hold weights, judging by their names, and which of these a loader reads.

transformers reads the first format that exists, safetensors first, and of it the shards of the index
(modeling_utils.py). Mistral publishes a second copy of the same weights, `consolidated*.safetensors`: it is
read if there is no other. vLLM with `load_format=auto` prefers that copy since 0.12, if it loads weights
itself (default_loader.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

Format = Literal["safetensors", "pickle", "gguf"]

INDEX = "model.safetensors.index.json"
INDEX_OF_PICKLES = "pytorch_model.bin.index.json"
ENDINGS: Mapping[str, Format] = {
    ".safetensors": "safetensors",
    ".bin": "pickle",
    ".pt": "pickle",
    ".pth": "pickle",
    ".gguf": "gguf",
}
"""In the order in which a loader prefers them."""
# Pickles that a trainer saves next to the weights (vllm filter_files_not_needed_for_inference).
_OF_TRAINERS = re.compile(
    r"(training_args\.bin|optimizer\.(bin|pt)|scheduler\.pt|scaler\.pt|rng_state(_\d+)?\.pth)$"
)
_SECOND_COPY = "consolidated"
_SHARD = re.compile(r"(.*-)(\d{5})(-of-)(\d{5})(\.\w+)")


def format_of(name: str) -> Format | None:
    """Return the format of a weight file; None for any other file."""
    ending = f".{name.rpartition('.')[2]}"
    return None if _OF_TRAINERS.search(name) else ENDINGS.get(ending)


def loaded(names: Iterable[str], indexed: Collection[str] = ()) -> set[str]:
    """Return the files read when a model is loaded: the index's existing shards, else all of one format."""
    weights = [name for name in names if format_of(name)]
    for ending in ENDINGS:
        found = {name for name in weights if name.endswith(ending)}
        if found:
            named = {name for name in found if name in indexed}
            return named or {name for name in found if not name.startswith(_SECOND_COPY)} or found
    return set()


def missing_shards(names: Iterable[str]) -> list[str]:
    """Return the missing shards, as counted in the names of others: model-00001-of-00003.safetensors."""
    present = set(names)
    wanted = set()
    for name in present:
        if format_of(name) and (match := _SHARD.fullmatch(name)):
            start, _, of, number, end = match.groups()
            wanted |= {f"{start}{shard:05}{of}{number}{end}" for shard in range(1, int(number) + 1)}
    return sorted(wanted - present)
