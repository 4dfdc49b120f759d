"""Tiny data and a tiny random model for a trial, loadable and trainable like real ones in seconds."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.probes import tiny
from verl_doctor.toolkit.process.locked_folder import abandoned, owned
from verl_doctor.toolkit.system.child import ending, run_probe
from verl_doctor.toolkit.tiny import rows as tiny_rows
from verl_doctor.toolkit.tiny import tokenizer as tiny_tokenizer
from verl_doctor.toolkit.tiny import weights
from verl_doctor.toolkit.tiny.columns import Columns, columns
from verl_doctor.toolkit.tiny.rows import Kind
from verl_doctor.toolkit.tiny.shape import SHAPES, Shape, generation_config

_LIMIT = 120.0  # seconds; usually one
# The child uses no network, and trains in one thread.
_VARIABLES = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
_ORDER = "order.json"
_UNFINISHED = ".verl-doctor-tiny-"


def names_in(folder: Path) -> Iterator[str]:
    """Return the names in a folder, without leftovers of killed runs. Raises OSError."""
    left = {path.name for path in abandoned(folder, _UNFINISHED)}
    return (entry.name for entry in folder.iterdir() if entry.name not in left)


@dataclass(frozen=True)
class Tiny:
    """The written files: the model's folder, and tables for reward training and response fine-tuning.

    `tuning` and `tuning_validation` are None if the tree has no data set for such rows. `shape` is a key of
    `SHAPES`. `settings` are the keys and values of verl's configuration that the data require.
    """

    model: Path
    train: Path
    validation: Path
    shape: str
    kind: Kind = "text"
    rows: int = 2
    tuning: Path | None = None
    tuning_validation: Path | None = None
    settings: tuple[tuple[str, str], ...] = ()


def make(
    machine: Machine,
    interpreter: Interpreter,
    folder: Path,
    *,
    shape: str = "qwen2",
    kind: Kind = "text",
    rows: int = 2,
    verl: Path | None = None,
) -> Tiny | Unknown:
    """Write data and model to `folder`, which may exist if it is empty. Nothing is left after an error.

    The columns are those that `verl` reads: by default the tree that the interpreter imports. `kind` "image"
    needs a shape that sees.
    """
    tree = verl or (Path(interpreter.verl) if interpreter.verl else None)
    if tree is None:
        return Unknown(
            f"{interpreter.executable} has no verl, whose sources define the columns of the data; name "
            "a tree with --verl"
        )
    read = columns(tree)
    if isinstance(read, Unknown):
        return read
    chosen = SHAPES[shape]()
    if unknown := _unknown_to_transformers(interpreter, chosen):
        return unknown
    tables = _tables(read, kind, rows)
    try:
        with _whole(folder) as unfinished:
            (unfinished / "model").mkdir()
            _query(machine, interpreter.executable, unfinished, {"tables": tables, "pictures": read.pictures})
            _write_model(unfinished / "model", chosen)
            if kind == "multi-turn" and read.tool.file:
                (unfinished / read.tool.file).write_text(read.tool.content, encoding="utf-8")
    except _NotMade as error:
        return Unknown(str(error))
    except OSError as error:
        return Unknown(f"{folder} cannot be written: {error.strerror}")
    paths = {Path(name).stem: folder / name for name in tables}
    return Tiny(
        model=folder / "model",
        train=paths["train"],
        validation=paths["validation"],
        shape=shape,
        kind=kind,
        rows=rows,
        tuning=paths.get("sft_train"),
        tuning_validation=paths.get("sft_validation"),
        settings=_settings(read, folder) if kind == "multi-turn" else (),
    )


def _unknown_to_transformers(interpreter: Interpreter, shape: Shape) -> Unknown | None:
    """Return why the target's transformers cannot load such a model: it has no folder for the family."""
    folder = dict(interpreter.libraries).get("transformers")
    if not folder or os.path.isdir(Path(folder, "models", shape.family)):
        return None
    return Unknown(
        f"transformers in {interpreter.prefix} is too old for {shape.title}: it has no "
        f"models/{shape.family}; choose another --model-shape"
    )


def _settings(read: Columns, folder: Path) -> tuple[tuple[str, str], ...]:
    """Return the settings that a job needs for conversations with a tool."""
    enabled = ("actor_rollout_ref.rollout.multi_turn.enable", "True")
    return (enabled, (read.tool.setting, str(folder / read.tool.file))) if read.tool.file else (enabled,)


def _tables(read: Columns, kind: Kind, rows: int) -> dict[str, list[tiny_rows.Row]]:
    """Return the rows of each file. Validation rows differ from training rows."""
    made = {
        "train.parquet": tiny_rows.rewarded(read, kind, rows, 0, "train"),
        "validation.parquet": tiny_rows.rewarded(read, kind, rows, rows, "validation"),
        "sft_train.parquet": tiny_rows.supervised(read, kind, rows, 0),
        "sft_validation.parquet": tiny_rows.supervised(read, kind, rows, rows),
    }
    return {name: found for name, found in made.items() if found}


def _write_model(folder: Path, shape: Shape) -> None:
    """Write the parts of the model that do not depend on the target."""
    files = {
        "config.json": shape.config,
        "generation_config.json": generation_config(),
        "tokenizer_config.json": tiny_tokenizer.tokenizer_config(),
        **shape.files,
    }
    for name, value in files.items():
        text = json.dumps(value, indent=2, sort_keys=True) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    weights.write(folder / "model.safetensors", shape.tensors)


class _NotMade(Exception):  # noqa: N818 - it is the environment that is wrong
    """The child could not write its part; the message is the reason."""


@contextlib.contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder and move its content into `folder` afterwards.

    Nothing is left after an error. Raises OSError.

    An existing folder is kept, because it may have permissions, be a mount, or be a shell's current folder:
    only its content is new. Leftovers of killed runs are removed.
    """
    exists = os.path.isdir(folder)
    place = folder if exists else folder.parent
    place.mkdir(parents=True, exist_ok=True)
    for left in abandoned(place, _UNFINISHED):
        shutil.rmtree(left, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=place))
    unfinished = aside / "unfinished"
    try:
        with owned(aside):
            unfinished.mkdir()
            yield unfinished
            if exists:
                for entry in sorted(unfinished.iterdir()):
                    entry.rename(folder / entry.name)
            else:
                unfinished.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _query(machine: Machine, python: str, folder: Path, data: dict[str, Any]) -> None:
    """Let the child write the tables and the tokenizer. Raises _NotMade."""
    tokenizer: dict[str, Any] = {
        "texts": tiny_rows.texts(),
        "size": tiny_tokenizer.VOCABULARY,
        "special": tiny_tokenizer.SPECIAL,
        "plain": tiny_tokenizer.PLAIN,
    }
    files = {name: base64.b64encode(content).decode() for name, content in tiny_rows.pictures().items()}
    order = folder / _ORDER
    request = {"model": "model", "tokenizer": tokenizer, "files": files, **data}
    order.write_text(json.dumps(request), encoding="utf-8")
    paths = (os.path.abspath(folder), os.path.abspath(order))
    result = run_probe(machine, python, tiny, *paths, timeout=_LIMIT, variables=_VARIABLES)
    order.unlink()
    if isinstance(result, Unknown):
        raise _NotMade(result.reason)
    output, reported = result
    if not isinstance(reported, dict):
        raise _NotMade(f"the tiny files could not be made: {ending(output, _LIMIT)}")
    if lacking := reported.get("lacks"):
        raise _NotMade(f"{python} has no {lacking}, which the tiny files require; install it there")
    if error := reported.get("error"):
        raise _NotMade(f"the tiny files could not be made: {error}")
