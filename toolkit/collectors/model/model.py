"""The model that the job would train: its configuration, and whether its files exist."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from verl_doctor.toolkit.collectors.configuration.beside import model_beside
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import given, launch_values
from verl_doctor.toolkit.collectors.launch.launch import Launch, folder_of
from verl_doctor.toolkit.collectors.model.weight_files import (
    INDEX,
    INDEX_OF_PICKLES,
    format_of,
    loaded,
    missing_shards,
)
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

_TOKENIZER = "tokenizer_config.json"
# What `git clone` leaves without git-lfs: three lines of text, of which this is the first.
LFS_MARK = b"version https://git-lfs.github.com/spec/"
_SMALL = 1024 * 1024  # bytes: that of a real vocabulary is several times as large
_WHOLE = "model.safetensors"
_LARGEST_CONFIG = 16 * 1024 * 1024  # bytes; the index of shards of a large model has one or two MiB
_PATHS = ("actor_rollout_ref.model.path", "model.path", "model.partial_pretrain")

Trouble = Literal["missing", "pointer", "damaged"]


@dataclass(frozen=True)
class BadFile:
    """A file of the model that is missing, is a Git LFS pointer, or cannot be parsed."""

    name: str
    trouble: Trouble
    reason: str = ""


@dataclass(frozen=True)
class Model:
    """A model's folder.

    `named_by` is the option or key that names it. Values that the configuration does not give are 0 and "".
    For a model with several parts they describe its language model. `head_size` is the size of one attention
    head as vLLM computes it, `layers` and `kv_heads` are the layers and the heads of each whose keys and
    values are kept: 0 for a model that does not keep those of every token in every layer. `mla`: it has
    multi-head latent attention (a `kv_lora_rank`). `own_code`: it ships its own Python code (`auto_map`).
    `without_weights`: the folder holds no weights at all. `place` and `line` are where a launch file names
    it. `beside` is the only model that may have been meant if the folder holds none. `has_processor`: it may
    have one for images, videos or audio. `code_elsewhere`: the file of its own code that describes its
    configuration (`auto_map`), if that is not in the folder.
    """

    folder: str
    named_by: str
    architectures: tuple[str, ...] = ()
    model_type: str = ""
    head_size: int = 0
    mla: bool = False
    own_code: bool = False
    has_vision: bool = False
    dtype: str = ""
    without_weights: bool = False
    layers: int = 0
    kv_heads: int = 0
    bad_files: tuple[BadFile, ...] = ()
    place: str = ""
    line: int = 0
    beside: str = ""
    has_processor: bool = True
    code_elsewhere: str = ""

    @property
    def is_described(self) -> bool:
        """Whether its configuration was read: without it nothing is known about the model."""
        return not any(file.name in ("", "config.json") for file in self.bad_files)


@collector(kept=True)
def model(
    machine: Machine, target: Target, launch: Launch | Unknown, configuration: Configuration | Unknown
) -> Model | Unknown:
    """Read the configuration of the model named with --model or in the launch command."""
    named = named_model(machine, target, launch, configuration)
    if isinstance(named, Unknown):
        return named
    found = replace(read_model(named.folder, named.by), place=named.place, line=named.line)
    if not named.cached:
        return found
    return replace(found, bad_files=(), without_weights=False, has_processor=True, code_elsewhere="")


@dataclass(frozen=True)
class NamedModel:
    """The folder of the job's model, whether it exists or not; `cached`: an earlier download from the hub."""

    folder: Path
    by: str
    cached: bool = False
    place: str = ""
    line: int = 0


def named_model(
    machine: Machine, target: Target, launch: Launch | Unknown, configuration: Configuration | Unknown
) -> NamedModel | Unknown:
    """Find which model the job would train, and what names it."""
    if target.model is not None:
        return NamedModel(target.model, target.model_by)
    if isinstance(launch, Launch) and launch.in_container:
        return Absent("the job reads its model in a container or on another machine; name it with --model")
    override = given(launch_values(launch, configuration), *_PATHS)
    if override is None:
        return Absent("no model is named: --model DIR, or actor_rollout_ref.model.path in the launch command")
    if not override.known:
        return Unknown(
            f"the value of {override.key} cannot be determined from the launch script; name it with --model"
        )
    folder = Path(os.path.normpath(folder_of(launch, machine.cwd) / machine.expanded(override.text)))
    if not os.path.isdir(folder):
        looks_local = override.text.startswith(("/", "~", "./", "../", "$"))
        cached = None if looks_local else cached_snapshot(override.text, machine)
        if cached is not None:  # a missing model would be downloaded
            return NamedModel(cached, override.key, cached=True, place=override.path, line=override.line)
        if not looks_local:
            return Absent(f"{override.text} is not a folder here: a name on the model hub, not in its cache")
    return NamedModel(folder, override.key, place=override.path, line=override.line)


def cached_snapshot(name: str, machine: Machine) -> Path | None:
    """Return the folder where huggingface_hub keeps a model's last version; None if it does not exist."""
    environ = machine.environ
    home = Path(environ.get("HF_HOME") or Path(machine.home, ".cache", "huggingface"))
    cache = Path(environ.get("HF_HUB_CACHE") or home / "hub")
    repository = cache / f"models--{name.replace('/', '--')}"
    try:
        commit = (repository / "refs" / "main").read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    snapshot = repository / "snapshots" / commit
    return snapshot if commit.isalnum() and os.path.isdir(snapshot) else None


def read_model(folder: Path, named_by: str) -> Model:
    """Read a model's folder. Weights are listed, not read."""
    if not os.path.isdir(folder):
        return Model(str(folder), named_by, bad_files=(BadFile("", "missing"),), beside=model_beside(folder))
    config = read_json(folder / "config.json")
    files = _listed(folder)
    weights = tuple(_bad_weights(folder, files))
    tokenizer = read_json(folder / _TOKENIZER) if _TOKENIZER in files else None
    bad = (
        (*weights, tokenizer)
        if isinstance(tokenizer, BadFile) and tokenizer.trouble == "damaged"
        else weights
    )
    without_weights = not weights and not any(map(format_of, files))
    if isinstance(config, BadFile):
        return Model(
            str(folder),
            named_by,
            without_weights=without_weights,
            bad_files=(config, *bad),
            beside=model_beside(folder) if config.trouble == "missing" else "",
        )
    language = _part(config, "text_config", "llm_config", "language_config", "thinker_config")
    language = _part(language, "text_config")
    return Model(
        folder=str(folder),
        named_by=named_by,
        architectures=tuple(name for name in _list(config, "architectures") if isinstance(name, str)),
        model_type=_text(config, "model_type"),
        head_size=_head_size(language),
        mla=bool(_number(language, "kv_lora_rank")),
        own_code=isinstance(config.get("auto_map"), dict),
        has_vision=any(key in config for key in ("vision_config", "visual", "vision_tower")),
        has_processor=language is not config
        or "auto_map" in config
        or any("vision" in key or "visual" in key or "audio" in key for key in config)
        or any(name.endswith("processor_config.json") for name in files),
        dtype=_text(language, "dtype") or _text(language, "torch_dtype") or _text(config, "torch_dtype"),
        without_weights=without_weights,
        layers=_number(language, "num_hidden_layers") if _keeps_every_token(language) else 0,
        kv_heads=_kv_heads(language) if _keeps_every_token(language) else 0,
        bad_files=bad,
        code_elsewhere=_code_elsewhere(config, files),
    )


def _code_elsewhere(config: Mapping[str, Any], files: Iterable[str]) -> str:
    """Return the file of `auto_map` with the class of the configuration, if it is not among the files.

    This is the file from which transformers takes the class.

    `owner/name--module.Class` is in another repository (transformers/dynamic_module_utils.py).
    """
    auto_map = config.get("auto_map")
    named = auto_map.get("AutoConfig") if isinstance(auto_map, dict) else None
    parts = named.split(".") if isinstance(named, str) and "--" not in named else []
    name = f"{parts[0]}.py" if len(parts) == 2 and all(part.isidentifier() for part in parts) else ""
    return "" if not name or not files or name in files else name


def read_json(path: Path) -> dict[str, Any] | BadFile:
    """Return a JSON object from a file, or the fault of the file."""
    try:
        seen = path.stat()
        if not stat.S_ISREG(seen.st_mode):
            return BadFile(path.name, "damaged", "it is not a file")
        if seen.st_size > _LARGEST_CONFIG:
            return BadFile(path.name, "damaged", "it is far too large")
        content = path.read_bytes()
    except FileNotFoundError:
        return BadFile(path.name, "missing")
    except OSError as error:
        return BadFile(path.name, "damaged", error.strerror or str(error))
    if content.startswith(LFS_MARK):
        return BadFile(path.name, "pointer")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        return BadFile(path.name, "damaged", f"it is not JSON: {error}"[:200])
    return value if isinstance(value, dict) else BadFile(path.name, "damaged", "it contains no JSON object")


def _ends_as_json(path: Path) -> bool:
    """Return whether a file ends like a JSON object; it may be too long to be read.

    True if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 64))
            end = file.read().rstrip()
    except OSError:
        return True
    return end.endswith(b"}")


def _tokenizer_fault(path: Path) -> str:
    """Return why a tokenizer.json cannot be used; only a small one is parsed."""
    try:
        size = path.stat().st_size
    except OSError:
        return ""
    content = read_json(path) if 0 < size <= _SMALL else {"model": {}}
    if isinstance(content, BadFile) and content.trouble == "damaged":
        return content.reason
    if not _ends_as_json(path):
        return "it is truncated: the last character is not }"
    return "" if isinstance(content, BadFile) or "model" in content else "it has no entry model"


def is_pointer(path: Path) -> bool:
    """Return whether a file is a Git LFS pointer instead of the real file."""
    try:
        seen = path.stat()
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > 1024:
            return False
        with path.open("rb") as file:
            return file.read(len(LFS_MARK)) == LFS_MARK
    except OSError:
        return False


def _bad_weights(folder: Path, files: Iterable[str]) -> Iterator[BadFile]:
    """Yield pointers in place of weights or of a tokenizer, and shards named by the index but missing."""
    present = set(files)
    for name in sorted(present):
        if format_of(name) and not _is_file(folder / name):
            yield BadFile(name, "damaged", "it is not a file")
        elif name.endswith((".safetensors", ".bin", ".model", "tokenizer.json")) and is_pointer(
            folder / name
        ):
            yield BadFile(name, "pointer")
        elif name == "tokenizer.json" and (reason := _tokenizer_fault(folder / name)):
            yield BadFile(name, "damaged", reason)
    # Pickles are read if there are no safetensors.
    file = (
        INDEX
        if any(name.endswith(".safetensors") for name in present) or INDEX in present
        else INDEX_OF_PICKLES
    )
    index = read_json(folder / file) if file in present else {}
    if isinstance(index, BadFile):
        yield index
        return
    shards = index.get("weight_map")
    if isinstance(shards, dict):
        named = {str(shard) for shard in shards.values()}
        if _WHOLE in present - named:  # transformers takes the one file, and does not read the index
            return
        for name in sorted(named - present):
            yield BadFile(name, "missing", f"{file} names it")
    else:
        for name in missing_shards(loaded(present)):
            yield BadFile(name, "missing", "the names of the other shards imply it")


def _is_file(path: Path) -> bool:
    """Return whether it is a file, or a broken link, whose target another rule checks."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []


def _head_size(config: Mapping[str, Any]) -> int:
    """Return `head_dim`, or the hidden size divided among the heads (vllm ModelConfig.get_head_size)."""
    heads = _number(config, "num_attention_heads")
    return _number(config, "head_dim") or (_number(config, "hidden_size") // heads if heads else 0)


def _kv_heads(config: Mapping[str, Any]) -> int:
    """Return the number of KV heads, else of attention heads (vllm ModelConfig.get_total_num_kv_heads)."""
    return _number(config, "num_key_value_heads") or _number(config, "num_attention_heads")


def _keeps_every_token(config: Mapping[str, Any]) -> bool:
    """Whether every layer attends to all tokens.

    Then there is no sliding window and no linear attention, and the cache holds only keys and values.
    """
    kinds = {str(kind) for key in ("layer_types", "layers_block_type") for kind in _list(config, key)}
    slides = _number(config, "sliding_window") and config.get("use_sliding_window", True)
    return not slides and not _number(config, "kv_lora_rank") and kinds <= {"full_attention", "attention"}


def _part(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return next((config[key] for key in keys if isinstance(config.get(key), dict)), config)


def _number(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _text(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return value[:200] if isinstance(value, str) else ""


def _list(config: Mapping[str, Any], key: str) -> list[Any]:
    value = config.get(key)
    return value[:20] if isinstance(value, list) else []
