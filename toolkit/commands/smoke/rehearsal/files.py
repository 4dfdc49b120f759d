"""A rehearsal's model, data and reward: tiny, or the first rows of the script's data and its own reward."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.commands.smoke.rehearsal.refused import Refused
from verl_doctor.toolkit.commands.smoke.rehearsal.requirements import Files
from verl_doctor.toolkit.commands.smoke.rehearsal.verl import PLUGIN
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import first_rows as first_rows_probe
from verl_doctor.toolkit.system.child import ending, run_probe
from verl_doctor.toolkit.tiny import tiny

_SEEING = "qwen2.5-vl"  # the shape of tiny models that accept pictures
_SMALL = 1 << 30  # bytes of weights; training takes eight times as much, and the rollout the same again
_WEIGHTS = ("*.safetensors", "*.bin")
_UNREADABLE = "SMOKE151"


def own_files(stage: Stage) -> Files:
    """Return the files of the stage, and a reward that differs between responses."""
    if stage.train is None:
        raise Refused(Outcome("not reached", "there are no data to train with"))
    model, own = _model(stage, sees=False)
    reward = stage.folder / "reward.py"
    shutil.copyfile(PLUGIN / "reward.py", reward)
    validation = stage.validation or stage.train
    return Files(model, (stage.train,), (validation,), stage.folder, reward, own_model=own)


def users_files(stage: Stage, script: Configuration) -> Files:
    """Return the first rows of the script's data, and a model that accepts them."""
    train, validation = (_rows(stage, script, key) for key in ("data.train_files", "data.val_files"))
    sees = any(script.get("data.image_key") in file.columns for file in (*train, *validation))
    model, own = _model(stage, sees=sees)
    return Files(model, _paths(train), _paths(validation), stage.folder, own_model=own)


def _paths(rows: tuple[Rows, ...]) -> tuple[Path, ...]:
    return tuple(row.path for row in rows)


def _model(stage: Stage, *, sees: bool) -> tuple[Path, bool]:
    """Return the user's own model if it fits one device, else a tiny one, and whether it is the user's."""
    if stage.own_model and stage.model is not None and _weight(stage.model) <= _SMALL:
        return stage.model, True
    if stage.own_model or sees or stage.model is None:
        return _tiny(stage, sees=sees), False
    return stage.model, False


def _weight(model: Path) -> int:
    """Return the bytes of the model's weights."""
    files = [path for pattern in _WEIGHTS for path in model.glob(pattern)]
    return sum(path.stat().st_size for path in files)


def _rows(stage: Stage, script: Configuration, key: str) -> tuple[Rows, ...]:
    value = script.get(key)
    named = tuple(map(str, value)) if isinstance(value, list) else (str(value),)
    rows = first_rows(stage.machine, stage.python, named, stage.folder / key.removeprefix("data."))
    if isinstance(rows, Unknown):
        raise Refused(Outcome("failed", rows.reason, f"give {key} files that are there", _UNREADABLE))
    if lacking := _without_prompts(script, named, rows):
        remedy = "name the column with the prompts in data.prompt_key"
        raise Refused(Outcome("failed", lacking, remedy, _UNREADABLE))
    return rows


def _without_prompts(script: Configuration, named: tuple[str, ...], rows: tuple[Rows, ...]) -> str:
    """Return the file that lacks the column read by verl's own dataset class.

    The result is "" if no file lacks it, or another class reads them.
    """
    key = script.get("data.prompt_key")
    if not isinstance(key, str) or isinstance(script.get("data.custom_cls.path"), str):
        return ""
    return next(
        (
            f"the data file {name} has no column {key}: it has {', '.join(row.columns)}"
            for name, row in zip(named, rows, strict=True)
            if row.columns and key not in row.columns
        ),
        "",
    )


def _tiny(stage: Stage, *, sees: bool) -> Path:
    """Create a tiny model, with vision if the data has pictures."""
    interpreter = stage.facts.get(Interpreter)
    chosen: dict[str, Any] = {"shape": _SEEING, "kind": "image"} if sees else {}
    made = (
        interpreter
        if isinstance(interpreter, Unknown)
        else tiny.make(
            stage.machine, interpreter, stage.folder / "tiny-model", verl=stage.target.verl, **chosen
        )
    )
    if isinstance(made, Unknown):
        raise Refused(Outcome("not reached", f"there is no tiny model to train: {made.reason}"))
    return made.model


ROWS = 8  # of each file: a step takes two, and verl shuffles
_LIMIT = 60.0  # seconds
_FORMATS = (".parquet", ".json", ".jsonl")  # verl/utils/dataset/rl_dataset.py


@dataclass(frozen=True)
class Rows:
    """A data file for the rehearsal, and its columns; none if unknown."""

    path: Path
    columns: tuple[str, ...] = ()


def first_rows(
    machine: Machine, python: str, named: tuple[str, ...], folder: Path
) -> tuple[Rows, ...] | Unknown:
    """Copy the first rows of these files into `folder`.

    A file whose format only verl or a dataset class can read stays in place. Unknown states which file cannot
    be read, and why.
    """
    paths = [Path(os.path.normpath(machine.cwd / machine.expanded(name))) for name in named]
    for path in paths:
        if not os.path.exists(path):
            return Unknown(f"the data file {path} does not exist")
    places = {
        path: folder / f"{number}-{path.name}"
        for number, path in enumerate(paths)
        if path.suffix in _FORMATS and os.path.isfile(path)
    }
    pairs = [str(path) for pair in places.items() for path in pair]
    if not pairs:
        return tuple(map(Rows, paths))
    folder.mkdir(parents=True, exist_ok=True)
    result = run_probe(machine, python, first_rows_probe, str(ROWS), *pairs, timeout=_LIMIT)
    if isinstance(result, Unknown):
        return result
    answer, reported = result
    if not isinstance(reported, list) or len(reported) != len(places):
        return Unknown(f"the first rows of {', '.join(named)} could not be copied: {ending(answer, _LIMIT)}")
    found = {}
    for (path, place), row in zip(places.items(), reported, strict=True):
        if isinstance(row, str):
            return Unknown(f"the data file {path} cannot be read: {row}")
        count, columns = row
        if not count:
            return Unknown(f"the data file {path} has no rows")
        found[path] = Rows(place, tuple(columns))
    return tuple(found.get(path, Rows(path)) for path in paths)
