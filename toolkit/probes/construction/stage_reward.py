"""The reward: its manager, its function, and the scores of the first rows."""

from __future__ import annotations

import asyncio
import inspect
from decimal import Decimal
from fractions import Fraction
from typing import Any

from verl_doctor.toolkit.probes.construction.find import called, find, has
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.stages import NotJudgedError, NotNeededError, stage

# It catches what scoring the answers to a prompt raises, and the trainer goes on with other prompts.
_LEAVES_OUT = "verl.trainer.ppo.v1.agent_loop_tq:AgentLoopWorkerTQ._run_prompt"
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
    data = _with_responses(job, job.batch, job.outputs)
    if hasattr(manager, "run_single"):
        results = asyncio.run(_single(job, data))
        results += asyncio.run(_single(job, _with_plain_text(job, data[:1])))
        _find_metric(job, results)
    else:
        manager(data)


def _find_metric(job: Job, results: list[dict[str, Any]]) -> None:
    """Look for the metric by which groups are filtered, as the replay buffer does."""
    usual, key = "verl.trainer.ppo.v1.replay_buffer:FILTER_GROUPS_REWARD_METRIC", "algorithm.filter_groups"
    if not job.value(f"{key}.enable", default=False) or not job.value("trainer.use_v1", default=False):
        return
    metric = job.value(f"{key}.metric")
    if not has(usual) or not metric or metric == find(usual):
        return
    details: list[dict[str, Any]] = [result.get("reward_extra_info") or {} for result in results]
    if any(metric not in each for each in details):
        job.notes["key"] = f"{key}.metric"
        found = ", ".join(details[0]) or "nothing"
        raise KeyError(f"the reward returns no {metric}, by which groups are filtered, but {found}")


@stage("validation reward", "reward", "agent loops in validation", seconds=30, users=True)
def validation_reward(job: Job) -> None:
    """Score the first rows of the validation data, and make metrics of the scores."""
    manager, metrics = job.notes["reward"], "verl.trainer.ppo.metric_utils:process_validation_metrics"
    if job.validation_batch is None or job.validation_outputs is None:
        raise NotNeededError("the job does not validate with agent loops")
    if not hasattr(manager, "run_single") or not has(metrics):
        raise NotJudgedError("this verl makes the metrics in another way")
    data = _with_responses(job, job.validation_batch, job.validation_outputs)
    results = asyncio.run(_single(job, data))
    details = [result.get("reward_extra_info") or {} for result in results]
    if not results or any(each.keys() != details[0].keys() for each in details):
        return
    values = {name: [each[name] for each in details] for name in details[0]}
    values["reward"] = [result["reward_score"] for result in results]
    find(metrics)(["validation"] * len(results), [str(row) for row in range(len(results))], values)


async def _single(job: Job, data: Any) -> list[dict[str, Any]]:
    """Score the first rows.

    Where the job goes on without the rows that cannot be scored, one that can is enough.
    """
    manager = job.notes["reward"]
    leaves_out = job.value("trainer.use_v1", default=False) is True and has(_LEAVES_OUT)
    if hasattr(manager, "loop"):
        manager.loop = asyncio.get_running_loop()
    init = getattr(type(manager), "init_class", None)
    if init is not None and not getattr(type(manager), "_class_initialized", True):
        called(init, config=manager.config, tokenizer=manager.tokenizer)
    failed: list[Exception] = []
    results: list[dict[str, Any]] = []
    for row in range(min(len(data), _ROWS)):
        try:
            results.append(await _scored(manager, data[row : row + 1], as_field=leaves_out))
        except Exception as error:  # noqa: BLE001, PERF203 - whatever the user's function raises
            failed.append(error)
            if not leaves_out:
                break
    if failed and not (leaves_out and results):
        raise failed[0]
    return results


async def _scored(manager: Any, row: Any, *, as_field: bool) -> dict[str, Any]:
    result = await manager.run_single(row)
    score = result.get("reward_score") if isinstance(result, dict) else result
    if not isinstance(result, dict) or not _is_number(score, as_field=as_field):
        raise TypeError(f"the reward function returned {score!r}, which is not a number")
    return result


def _is_number(value: Any, *, as_field: bool) -> bool:
    """Return whether a tensor of rewards takes a score.

    As a field of an agent loop's output, fractions become texts before that.
    """
    if isinstance(value, (str, Fraction, Decimal) if as_field else str):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _with_plain_text(job: Job, data: Any) -> Any:
    """Replace a row's response.

    A model's first answers are often in no form that a reward function looks for.
    """
    responses, mask = data.batch["responses"], data.batch["attention_mask"]
    width = responses.shape[-1]
    tokens = job.tokenizer.encode(_PLAIN_TEXT, add_special_tokens=False)[:width]
    responses, mask = responses.clone(), mask.clone()
    responses[:, : len(tokens)] = responses.new_tensor(tokens)
    mask[:, -width:] = 0
    mask[:, mask.shape[-1] - width : mask.shape[-1] - width + len(tokens)] = 1
    data.batch["responses"], data.batch["attention_mask"] = responses, mask
    return data


def _with_responses(job: Job, batch: Any, outputs: Any) -> Any:
    """Return the first rows with responses, as the rollout passes them to the reward."""
    import torch

    if outputs is not None:
        names = ("prompts", "responses", "attention_mask", "input_ids")
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
