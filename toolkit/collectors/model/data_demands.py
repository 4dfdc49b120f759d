"""What this verl and this job require of the data: columns, file types, rows, and scorable sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.launch_values import (
    KeyValue,
    LaunchValues,
    given,
    launch_values,
    text_of,
)
from verl_doctor.toolkit.collectors.configuration.roles import trains
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.data_tables import SOURCE_KEY, DataTables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.evaluate import RAISES, UNCLEAR, returned
from verl_doctor.toolkit.sources.python.source import parse_file, read, walk

_DATASET = "utils/dataset/rl_dataset.py"
_TALKS = "utils/dataset/multiturn_sft_dataset.py"
# The messages are text only where a row has neither column.
_UNLESS_A_COLUMN = re.compile(r"if self\.image_key not in example and self\.video_key not in example:")
_SCORES = "utils/reward_score/__init__.py"
_SCORE = ("default_compute_score", "_default_compute_score")  # the second until verl 0.3
_MANAGERS = (
    "experimental/reward_loop/reward_manager/naive.py",
    "experimental/reward/reward_loop/naive.py",
    "workers/reward_manager/naive.py",
)
_DEFAULTS = ("trainer/config/data/legacy_data.yaml", "trainer/config/ppo_trainer.yaml")
_BATCH = re.compile(r"^\s*train_batch_size:\s*(\d+)\s*(?:#.*)?$", re.MULTILINE)
_CONCATENATES = "datasets.concatenate_datasets("
_PROCESSOR = "assert self.processor is not None"
_OWN_SCORE = ("custom_reward_function.path", "reward.custom_reward_function.path")
_OWN_MANAGER = ("reward.reward_manager.module.path", "reward_manager.module.path")
_REWARD_MODEL = ("reward_model.enable", "reward.reward_model.enable")
_SOURCE = "data.reward_fn_key"
_OWN_DATASET = "data.custom_cls.path"


@dataclass(frozen=True)
class DataDemands:
    """The requirements, from verl's sources and the command's overrides.

    `kinds` are the file extensions that verl's data set reads; empty if it does not check them. `prompt`,
    `source` and `truth` name columns, empty if the job does not need them (its own reward manager, or a
    reward model). A reward function of the job (`own_score`) still receives them. `batch` is the number of
    rows of the first step, 0 if unknown, and `batch_from` where it is set. `most_rows` is a limit set by the
    command, 0 for none. `source_by` is the setting that names the source column, "" if the name is fixed.
    `media` are columns whose values need the model's processor, `filters`: rows whose prompt cannot be
    tokenized are left out. `aligns`: the files become one table of the package `datasets`.
    """

    read_from: str
    kinds: tuple[str, ...]
    prompt: str
    source: str
    truth: str
    batch: int
    batch_from: str
    most_rows: int = 0
    own_score: bool = False
    source_by: str = "data.reward_fn_key"
    media: tuple[str, ...] = ()
    filters: bool = True
    aligns: bool = False


@dataclass(frozen=True)
class ConversationDemands:
    """What verl's data set of conversations requires.

    Without a processor of the model, there may be no column among `media`, even an empty one.
    """

    read_from: str
    media: tuple[str, ...]
    messages: str


@dataclass(frozen=True)
class ScoredSources:
    """Which of the data's sources verl's own reward function scores.

    `refused` are those for which it raises NotImplementedError; `names` are all that its source text
    mentions. `column` is where a row names its source, "" if the function may accept a source that is no
    text.
    """

    refused: tuple[str, ...]
    names: tuple[str, ...]
    read_from: str
    column: str = ""


@collector(kept=True)
def data_demands(
    verl: VerlTrees, launch: Launch | Unknown, configuration: Configuration | Unknown
) -> DataDemands | Unknown:
    """Read verl's data set, its reward manager, its defaults and the command's overrides."""
    command = launch.command if isinstance(launch, Launch) else None
    if command is not None and "sft" in command.module:
        return Absent(f"{command.module} trains on different columns than the reward-based trainers")
    if command is not None and isinstance(configuration, Unknown) and not command.of_verl:
        return Absent(f"{command.module} may start a trainer that reads other columns")
    if isinstance(configuration, Configuration):
        if configuration.own_parts:
            return Absent(f"{configuration.program} may have a trainer or a data set of its own")
        if not trains(configuration):
            return Absent("the job trains nothing")
    values = launch_values(launch, configuration)
    own = given(values, _OWN_DATASET)
    if own is not None:
        uses = "uses" if own.known else "may use"
        return Absent(f"the job {uses} its own data set ({_OWN_DATASET})")
    tree = verl.imported
    dataset = _text(tree, _DATASET)
    if dataset is None:
        return Absent(f"{tree.folder} has no {_DATASET}")
    managed = _managed_by_verl(values)
    prompt = _overridden(values, "data.prompt_key", "prompt")
    manager = next((text for name in _MANAGERS if (text := _text(tree, name)) is not None), "")
    reads_key = "reward_fn_key" in manager or not manager  # from 0.7 on the column's name is fixed
    source = _overridden(values, _SOURCE, SOURCE_KEY) if reads_key else SOURCE_KEY
    truth = 'non_tensor_batch["reward_model"]["ground_truth"]'
    is_read = any(truth in text for text in (_text(tree, name) or "" for name in _MANAGERS))
    batch, batch_from = _batch(values, tree)
    kinds = [
        name
        for name in ("image", "video", "audio")
        if _PROCESSOR in dataset and f"self.{name}_key" in dataset
    ]
    return DataDemands(
        read_from=str(Path(tree.folder, _DATASET)),
        kinds=("parquet", *(("json", "jsonl") if '".jsonl"' in dataset else ())),
        prompt=prompt,
        source=source if managed else "",
        truth="reward_model.ground_truth" if managed and is_read else "",
        own_score=given(values, *_OWN_SCORE) is not None,
        source_by=_SOURCE if reads_key else "",
        batch=batch,
        batch_from=batch_from,
        most_rows=_number(values.get("data.train_max_samples")),
        media=tuple(
            _overridden(values, f"data.{name}_key", f"{name}s" if name != "audio" else name) for name in kinds
        ),
        filters=_filters(configuration),
        aligns=_CONCATENATES in dataset,
    )


def _filters(configuration: Configuration | Unknown) -> bool:
    """Return whether rows without a usable prompt may be left out."""
    return (
        not isinstance(configuration, Configuration)
        or configuration.get("data.filter_overlong_prompts") is not False
    )


@collector(kept=True)
def conversation_demands(verl: VerlTrees, configuration: Configuration) -> ConversationDemands | Unknown:
    """Read verl's data set of conversations."""
    messages = configuration.get("data.messages_key")
    if configuration.has("actor_rollout_ref") or not isinstance(messages, str):
        return Absent("this job does no fine-tuning on conversations")
    if configuration.get(_OWN_DATASET) not in (None, MISSING):
        return Absent(f"the job uses its own data set ({_OWN_DATASET})")
    source = _text(verl.imported, _TALKS) or ""
    if _PROCESSOR not in source or not _UNLESS_A_COLUMN.search(source):
        return Absent("this verl reads no media of conversations, or decides by their values")
    keys = (f"data.{name}_key" for name in ("image", "video"))
    columns = (configuration.get(key) for key in keys)
    media = [
        f"{name}s" if column is MISSING else column
        for name, column in zip(("image", "video"), columns, strict=True)
    ]
    known = tuple(column for column in media if isinstance(column, str))
    return ConversationDemands(str(Path(verl.imported.folder, _TALKS)), known, messages)


@collector()
def scored_sources(verl: VerlTrees, demands: DataDemands, tables: DataTables) -> ScoredSources | Unknown:
    """Trace verl's reward function for each source in the data."""
    if not demands.source or demands.own_score:
        return Absent("verl's reward function is not called, because the job has its own")
    path = Path(verl.imported.folder, _SCORES)
    tree = parse_file(path)
    if not isinstance(tree, ast.Module):
        return Unknown(tree.reason)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    function = next((functions[name] for name in _SCORE if name in functions), None)
    if function is None or not function.args.args:
        return Absent(f"{path} has no {_SCORE[0]}")
    sources = dict.fromkeys(name for table in tables.tables for name in table.sources)
    parameter = function.args.args[0].arg
    refused = [
        name for name in sources if returned(function, {parameter: name}, _Text(name, parameter)) is RAISES
    ]
    other = "\0"  # equals no text and begins with none
    accepts = returned(function, {parameter: other}, _Text(other, parameter)) is not RAISES
    names = tuple(dict.fromkeys(_names(function, parameter)))
    return ScoredSources(tuple(refused), names, str(path), "" if accepts else demands.source)


@dataclass(frozen=True)
class _Text:
    """Evaluates `data_source.startswith("aime")` and similar calls only."""

    value: str
    name: str

    def __call__(self, called: str, arguments: tuple[Any, ...]) -> Any:
        owner, _, method = called.rpartition(".")
        if owner != self.name or method not in {"startswith", "endswith", "lower", "upper", "strip"}:
            return UNCLEAR
        try:
            return getattr(self.value, method)(*arguments)
        except TypeError:
            return UNCLEAR


def _names(function: ast.FunctionDef, parameter: str) -> Iterator[str]:
    """Yield the texts with which the function compares the source."""
    for node in walk(function):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == parameter:
            for part in walk(node.comparators[0]):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def _managed_by_verl(values: LaunchValues) -> bool:
    """Whether verl's own reward manager reads the rows: no manager of the user's and no reward model."""
    by_model = any(text_of(values, key).lower() == "true" for key in _REWARD_MODEL)
    return not by_model and given(values, *_OWN_MANAGER) is None


def _overridden(values: LaunchValues, key: str, default: str) -> str:
    """Return a column's name as the command sets it; empty if it sets an unknown value."""
    override = given(values, key)
    return default if override is None else override.text


def _batch(values: LaunchValues, tree: Tree) -> tuple[int, str]:
    """Return the rows of one step: from the command, or the default in verl's configuration."""
    override = given(values, "data.gen_batch_size", "data.train_batch_size")
    if override is not None:
        return _number(override), override.key
    for name in _DEFAULTS:
        if match := _BATCH.search(_text(tree, name) or ""):
            return int(match[1]), f"data.train_batch_size, by default ({name})"
    return 0, ""


def _number(entry: KeyValue | None) -> int:
    value = entry.value if entry is not None else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _text(tree: Tree, name: str) -> str | None:
    content = read(Path(tree.folder, name))
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else None
