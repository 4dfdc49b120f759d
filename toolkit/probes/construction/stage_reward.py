"""The reward: its manager, its function, and the scores of the first rows."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from verl_doctor.toolkit.probes.construction.find import called, find
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.stages import NotJudgedError, NotNeededError, stage

_ROWS = 4
_PLAIN_TEXT = "I do not know."


@stage("reward manager", "model", seconds=45, users=True)
def reward_manager(job: Job) -> None:
    """Build the reward manager, with the user's function if the job names one."""
    if job.kind != "ppo":
        raise NotNeededError("an SFT job has no reward")
    load = find("verl.trainer.ppo.reward:load_reward_manager")
    more = {"num_examine": 0} if "num_examine" in inspect.signature(load).parameters else {}
    manager = load(job.config, job.tokenizer, **more)
    job.notes["reward"] = manager


@stage("reward", "reward manager", "first batch", seconds=30, users=True)
def reward(job: Job) -> None:
    """Score the first rows, with a made-up response, and one of them with a response of no form at all."""
    if any(job.value(f"{key}.enable", default=False) for key in ("reward.reward_model", "reward_model")):
        raise NotJudgedError("a reward model scores the answers, and it needs a GPU")
    manager = job.notes["reward"]
    data = _with_responses(job)
    if hasattr(manager, "run_single"):
        asyncio.run(_single(manager, data))
        asyncio.run(_single(manager, _with_plain_text(job, data[:1])))
    else:
        manager(data)


async def _single(manager: Any, data: Any) -> None:
    if hasattr(manager, "loop"):
        manager.loop = asyncio.get_running_loop()
    init = getattr(type(manager), "init_class", None)
    if init is not None and not getattr(type(manager), "_class_initialized", True):
        called(init, config=manager.config, tokenizer=manager.tokenizer)
    for row in range(min(len(data), _ROWS)):
        result = await manager.run_single(data[row : row + 1])
        if not isinstance(result, dict) or not isinstance(_number(result.get("reward_score")), float):
            raise TypeError(
                f"the reward function returned {result.get('reward_score')!r}, which is not a number"
            )


def _with_plain_text(job: Job, data: Any) -> Any:
    """Replace a row's response: a model's first answers are often in no form that a reward function looks for."""
    responses, mask = data.batch["responses"], data.batch["attention_mask"]
    width = responses.shape[-1]
    tokens = job.tokenizer.encode(_PLAIN_TEXT, add_special_tokens=False)[:width]
    responses, mask = responses.clone(), mask.clone()
    responses[:, : len(tokens)] = responses.new_tensor(tokens)
    mask[:, -width:] = 0
    mask[:, mask.shape[-1] - width : mask.shape[-1] - width + len(tokens)] = 1
    data.batch["responses"], data.batch["attention_mask"] = responses, mask
    return data


def _number(value: Any) -> Any:
    """Convert to a number, as a tensor of rewards does; return anything else unchanged."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def _with_responses(job: Job) -> Any:
    """Return the first rows with responses, as the rollout passes them to the reward."""
    import torch

    batch = job.batch
    if job.outputs is not None:
        outputs, names = job.outputs, ("prompts", "responses", "attention_mask", "input_ids")
        tensors = {name: outputs.batch[name][:_ROWS] for name in names if name in outputs.batch}
        fields = {name: value[:_ROWS] for name, value in outputs.non_tensor_batch.items()}
        return _with_rows(tensors, fields, batch)
    if not hasattr(batch, "batch") or batch.batch is None or "input_ids" not in batch.batch:
        raise NotJudgedError("there are no tokenized prompts, because the agent loops were not run")
    prompts = batch.batch["input_ids"][:_ROWS]
    mask = batch.batch["attention_mask"][:_ROWS]
    answer = job.tokenizer.encode("The answer is 2.\n#### 2", add_special_tokens=False)
    length = min(len(answer), int(job.value("data.max_response_length", len(answer))))
    responses = torch.tensor([answer[:length]] * len(prompts), dtype=prompts.dtype)
    tensors = {
        "prompts": prompts,
        "responses": responses,
        "input_ids": torch.cat([prompts, responses], dim=1),
        "attention_mask": torch.cat([mask, torch.ones_like(responses)], dim=1),
    }
    return _with_rows(tensors, {name: value[:_ROWS] for name, value in batch.non_tensor_batch.items()}, batch)


def _with_rows(tensors: dict[str, Any], fields: dict[str, Any], batch: Any) -> Any:
    """Return a batch of these tensors, with each row's fields other than its prompt."""
    data = find("verl:DataProto").from_dict(tensors=tensors, non_tensors=fields)
    data.meta_info = {**getattr(batch, "meta_info", {}), "global_steps": 0}
    return data
