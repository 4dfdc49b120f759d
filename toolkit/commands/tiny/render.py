"""The output of `verl-doctor tiny`: what was written, and how a job uses it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from verl_doctor.toolkit.sources.hydra.words import bare
from verl_doctor.toolkit.text import counted, in_bytes, wrapped
from verl_doctor.toolkit.tiny.shape import SHAPES
from verl_doctor.toolkit.tiny.tiny import Tiny

_LONGEST_PROMPT, _LONGEST_ANSWER = 256, 64  # tokens


def lines(made: Tiny, width: int | None, arguments: Iterable[str] = ()) -> list[str]:
    """Return the report. `arguments` are the options with which another command examines the same target."""
    folder = made.model.parent
    shape = SHAPES[made.shape]()
    tables = [path for path in (made.train, made.validation, made.tuning, made.tuning_validation) if path]
    whole = sum(_size(path) for path in (made.model, *tables))
    named = [
        (
            f"{made.model.name}/",
            made.model,
            f"random {shape.title}, {shape.parameters / 1e6:.1f} million parameters",
        )
    ]
    smoke_arguments = [*arguments, "--model", str(made.model), "--data", str(made.train)]
    of_rows = counted(made.rows, "row")
    named += [(path.name, path, f"{of_rows} for {_purpose(path)}") for path in tables]
    return [
        f"wrote {folder}: {in_bytes(whole)}",
        *(f"  {name:<23}{in_bytes(_size(path)):>8}  {what}" for name, path, what in named),
        "",
        *wrapped("Use it with these overrides of main_ppo:", width),
        *_continued([shlex.quote(word) for word in overrides(made)]),
        *wrapped("Or run the smoke test with it:", width),
        *_command("verl-doctor smoke", smoke_arguments, width),
    ]


def overrides(made: Tiny) -> list[str]:
    """Return the Hydra overrides with which a job of `verl.trainer.main_ppo` uses the files."""
    values: dict[str, object] = {
        "data.train_files": made.train,
        "data.val_files": made.validation,
        "data.train_batch_size": made.rows,
        "data.max_prompt_length": _LONGEST_PROMPT,
        "data.max_response_length": _LONGEST_ANSWER,
        "actor_rollout_ref.model.path": made.model,
        "actor_rollout_ref.actor.ppo_mini_batch_size": made.rows,
    }
    values |= dict(made.settings)
    return [f"{key}={bare(str(value))}" for key, value in values.items()]


def _command(program: str, options: list[str], width: int | None) -> Iterator[str]:
    """Yield a command on one line if it fits, else with each option on its own line."""
    whole = f"  {program} {shlex.join(options)}"
    if width is None or len(whole) <= width:
        yield whole
        return
    begins = [*(index for index, word in enumerate(options) if word.startswith("--")), len(options)]
    yield from _continued([program, *(shlex.join(options[at:end]) for at, end in pairwise(begins))])


def _continued(lines: list[str]) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield f"  {line}" + (" \\" if index < len(lines) - 1 else "")


def _purpose(path: Path) -> str:
    return "fine-tuning (verl's SFT trainer)" if path.name.startswith("sft_") else "training with rewards"


def _size(path: Path) -> int:
    """Return the size in bytes."""
    if not os.path.isdir(path):
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.iterdir())
