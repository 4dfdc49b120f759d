"""Tiny data and a tiny random model for a trial: they are read, loaded and trained on as real ones are, in seconds."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from verl_doctor.toolkit import child_tiny
from verl_doctor.toolkit.child import ask_child, ending
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.tiny_columns import columns

Shape = Literal["qwen2"]

_LIMIT = 120.0  # seconds; two are usual
_SOURCE = "openai/gsm8k"  # scored by verl without further packages
_VARIABLES = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Tiny:
    """What was written: the model's folder, two data files for training with rewards, and the shape of the model."""

    model: Path
    train: Path
    validation: Path
    shape: str


def make(
    machine: Machine,
    interpreter: Interpreter,
    folder: Path,
    *,
    shape: Shape = "qwen2",
    rows: int = 2,
    verl: Path | None = None,
) -> Tiny | Unknown:
    """Write them into `folder`, which may be there if it is empty; whole or not at all.

    The columns are those that `verl` reads, the tree that the interpreter imports unless another one is named.
    """
    tree = verl or (Path(interpreter.verl) if interpreter.verl else None)
    if tree is None:
        return Unknown(
            f"{interpreter.executable} has no verl, whose sources tell the columns of the data; name a tree with --verl"
        )
    read = columns(tree)
    if isinstance(read, Unknown):
        return read
    order = {"shape": shape, "rows": rows, "columns": read.rewarded, "source": _SOURCE}
    try:
        with _aside(folder) as unfinished:
            said = _ask(machine, interpreter.executable, unfinished, order)
            if said is None:
                unfinished.replace(folder)
    except OSError as error:
        return Unknown(f"{folder} cannot be written: {error.strerror}")
    return said or Tiny(folder / "model", folder / "train.parquet", folder / "validation.parquet", shape)


@contextlib.contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A folder beside the one that is wanted, which is gone afterwards unless it was renamed."""
    unfinished = folder.with_name(f".verl-doctor-{secrets.token_hex(8)}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished.mkdir()
    try:
        yield unfinished
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _ask(machine: Machine, python: str, folder: Path, order: dict[str, object]) -> Unknown | None:
    """Let the child write. None when it did."""
    heard = ask_child(
        machine,
        python,
        child_tiny,
        os.path.abspath(folder),
        json.dumps(order),
        timeout=_LIMIT,
        variables=_VARIABLES,
    )
    if isinstance(heard, Unknown):
        return heard
    answer, told = heard
    if not isinstance(told, dict):
        return Unknown(f"the tiny files could not be made: {ending(answer, _LIMIT)}")
    if lacking := told.get("lacks"):
        return Unknown(f"{python} has no {lacking}, with which the tiny files are made; install it there")
    if error := told.get("error"):
        return Unknown(f"the tiny files could not be made: {error}")
    return None
