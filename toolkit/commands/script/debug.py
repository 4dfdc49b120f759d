"""The DEBUG variant: the same job with the same code paths, in minutes.

Two steps on the smallest batch that verl accepts, short responses, no compiled graphs, no saving, no
validation, no reporting to other machines. Settings that decide whether the job fits and how it is
distributed over the GPUs stay unchanged.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.commands.script.sizes import shrink
from verl_doctor.toolkit.commands.script.variant import Recipe, RecipeBuilder

_ROLLOUT = "actor_rollout_ref.rollout"
_STEPS = 2  # the second step starts with weights that the first has changed
_ANSWER = 64  # tokens
_CONVERSATION = 512  # tokens: the minimum for several turns and tool responses
_TINY_ROWS = 2  # the default of `verl-doctor tiny`
_SHORT_PROMPT = 512  # tokens: short enough already; longer than a row of tiny data
_STEP = 128  # tokens
_NEVER = 900  # such a number, like 999, means "never"
_OFF = -1  # verl: "if config.trainer.save_freq > 0"; a large number still saves after the last step


def debug(
    configuration: Configuration,
    tiny: Path | None = None,
    *,
    rows: int | None = None,
    one_node: bool = False,
    gpus: int | None = None,
    prompt: int | None = None,
) -> Recipe:
    """Return the changes to a command that starts verl.

    `tiny` is a folder written by `verl-doctor tiny` with this many `rows`. `gpus` is the number per node if
    the script does not set it. `prompt` is an upper limit for the tokens of a prompt in the data.
    """
    changes = RecipeBuilder(configuration)
    if one_node:
        changes.give("trainer.nnodes", 1, "requested by --one-node")
    elif (nodes := changes.number("trainer.nnodes")) and nodes > 1:
        changes.kept.append(f"trainer.nnodes={nodes} stays; --one-node tries the job on one node")
    if tiny is not None:
        _tiny_data(changes, tiny)
    trains = configuration.has("actor_rollout_ref.actor")
    if trains and "experimental" in Path(configuration.program).parts:
        changes.kept.append(
            "batch sizes and lengths stay: experimental programs of verl divide them differently"
        )
        _rollout(changes)
    elif trains:
        shrink(changes, None if tiny is None else rows or _TINY_ROWS, gpus)
        _lengths(changes, tiny, prompt)
        _rollout(changes)
    else:
        changes.kept.append("batch sizes and lengths stay: this is not a configuration of PPO or GRPO")
        _own_checkpoints(changes)
    _trainer(changes)
    return changes.recipe()


def _tiny_data(changes: RecipeBuilder, tiny: Path) -> None:
    changes.give("data.train_files", str(tiny / "train.parquet"), "requested by --tiny")
    changes.give("data.val_files", str(tiny / "validation.parquet"), "requested by --tiny")


def _lengths(changes: RecipeBuilder, tiny: Path | None, prompt: int | None) -> None:
    turns = changes.value(f"{_ROLLOUT}.multi_turn.enable") is True
    answer = _CONVERSATION if turns else _ANSWER
    changes.lower("data.max_response_length", answer, "short answers run the same code")
    changes.lower(f"{_ROLLOUT}.response_length", answer, "short answers run the same code")
    key = "data.max_prompt_length"
    if tiny is not None:
        changes.lower(key, _SHORT_PROMPT, "the tiny data have short prompts")
    elif prompt is not None:
        enough = max(_SHORT_PROMPT, math.ceil(prompt / _STEP) * _STEP)
        changes.lower(key, enough, f"no prompt of the data can have more than {prompt} tokens")
    elif (changes.number(key) or 0) > _SHORT_PROMPT:
        changes.kept.append(f"{key} stays: with less, verl would drop or refuse longer rows of the data")


def _rollout(changes: RecipeBuilder) -> None:
    changes.give(f"{_ROLLOUT}.enforce_eager", True, "no graphs are captured at the start")
    if changes.value("algorithm.filter_groups.enable") is True:
        changes.give(
            "algorithm.filter_groups.enable",
            False,
            "the two samples of a prompt often have equal scores, and would be generated repeatedly",
        )
    if (changes.configuration.number(f"{_ROLLOUT}.gpu_memory_utilization") or 0) > 0:
        changes.kept.append(
            f"{_ROLLOUT}.gpu_memory_utilization stays: the trial includes whether model and rollout fit"
        )


def _trainer(changes: RecipeBuilder) -> None:
    if changes.configuration.has("trainer.total_training_steps"):
        _at_most(
            changes, "trainer.total_training_steps", _STEPS, "the second step starts with changed weights"
        )
    else:
        changes.lower("trainer.total_epochs", 1, "one pass over the data is enough")
    if changes.value("trainer.logger") != "console":
        changes.give("trainer.logger", ["console"], "nothing is reported to other machines")
    _switch_off(changes, "trainer.save_freq", "a trial needs no checkpoint")
    if changes.value("trainer.val_only") is True:
        changes.kept.append("validation stays: the script does nothing else (trainer.val_only=True)")
    else:
        _switch_off(changes, "trainer.test_freq", "nothing is validated")
        if changes.value("trainer.val_before_train") is not MISSING:
            changes.give(
                "trainer.val_before_train", False, "the validation set is not generated before the first step"
            )
    if changes.value("trainer.resume_mode") not in (MISSING, "disable"):
        changes.give("trainer.resume_mode", "disable", "a checkpoint of the real run is not loaded")
    for key in ("trainer.rollout_data_dir", "trainer.validation_data_dir"):
        if changes.value(key) not in (MISSING, None):
            changes.give(key, None, "files of the real run are not overwritten")
    changes.lower("data.dataloader_num_workers", 0, "errors in the data show their own traceback")


def _own_checkpoints(changes: RecipeBuilder) -> None:
    """Redirect what the SFT trainers of 0.3 to 0.9 save after the last step, regardless of `save_freq`."""
    key = "trainer.default_local_dir"
    folder = changes.value(key)
    if folder is not MISSING:
        name = folder.rstrip("/") if isinstance(folder, str) and folder else "checkpoints"
        changes.give(
            key,
            f"{name}_debug",
            "this trainer saves after its last step, not over the real run's checkpoints",
        )


def _at_most(changes: RecipeBuilder, key: str, most: int, why: str) -> None:
    """Like `lower`, but null means no limit."""
    if changes.value(key) is None:
        changes.give(key, most, why)
    changes.lower(key, most, why)


def _switch_off(changes: RecipeBuilder, key: str, why: str) -> None:
    now: Any = changes.value(key)
    if now is not MISSING and not (isinstance(now, int) and now <= 0):
        late = isinstance(now, int) and now >= _NEVER
        changes.give(key, _OFF, f"{why}; {now} still does it after the last step" if late else why)
