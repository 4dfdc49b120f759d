"""The model, the data and the reward of a rehearsal: tiny ones, or with a script the first rows of its data and its own reward."""

from __future__ import annotations

import shutil
from pathlib import Path

from verl_doctor.toolkit import tiny
from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rehearsal_refused import Refused
from verl_doctor.toolkit.rehearsal_rows import Rows, first_rows
from verl_doctor.toolkit.rehearsal_verl import PLUGIN
from verl_doctor.toolkit.rehearsal_wants import Files
from verl_doctor.toolkit.smoke_rung import Outcome, Stage

_SEEING = "qwen2.5-vl"  # the shape of tiny models that takes pictures
_UNREADABLE = "SMOKE151"


def own_files(stage: Stage) -> Files:
    """Those of the stage, and a reward that differs between answers."""
    if stage.model is None or stage.train is None:
        raise Refused(Outcome("not reached", "there is no tiny model, or no data, to train with"))
    reward = stage.folder / "reward.py"
    shutil.copyfile(PLUGIN / "reward.py", reward)
    validation = stage.validation or stage.train
    return Files(stage.model, (stage.train,), (validation,), stage.folder, reward, own_model=stage.own_model)


def users_files(stage: Stage, script: Configuration) -> Files:
    """The first rows of the script's data, and a model that takes them."""
    train, validation = (_rows(stage, script, key) for key in ("data.train_files", "data.val_files"))
    sees = any(script.get("data.image_key") in one.columns for one in (*train, *validation))
    model = stage.model if stage.own_model or not sees else _seeing(stage)
    if model is None:
        raise Refused(Outcome("not reached", "there is no tiny model to train"))
    return Files(
        model,
        tuple(one.path for one in train),
        tuple(one.path for one in validation),
        stage.folder,
        own_model=stage.own_model,
    )


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
    """Which file lacks the column that verl's own dataset class reads; "" when none does, or another class reads them."""
    key = script.get("data.prompt_key")
    if not isinstance(key, str) or isinstance(script.get("data.custom_cls.path"), str):
        return ""
    return next(
        (
            f"the data file {name} has no column {key}: it has {', '.join(one.columns)}"
            for name, one in zip(named, rows, strict=True)
            if one.columns and key not in one.columns
        ),
        "",
    )


def _seeing(stage: Stage) -> Path:
    """A tiny model for data with pictures."""
    interpreter = stage.facts.get(Interpreter)
    folder = stage.folder / "tiny-seeing"
    made = (
        interpreter
        if isinstance(interpreter, Unknown)
        else tiny.make(
            stage.machine, interpreter, folder, shape=_SEEING, kind="image", verl=stage.target.verl
        )
    )
    if isinstance(made, Unknown):
        raise Refused(
            Outcome(
                "not reached", f"the data have pictures, and there is no tiny model that sees: {made.reason}"
            )
        )
    return made.model
