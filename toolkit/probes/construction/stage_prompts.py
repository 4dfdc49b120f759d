"""The agent loops, on the first rows with made-up responses.

Their tools, chat template, prompt lengths and sampling parameters.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any
from unittest import mock

from verl_doctor.toolkit.probes.construction.find import find, plain, taken
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.stage_rollout import CannedEngine
from verl_doctor.toolkit.probes.construction.stages import NotHereError, NotNeededError, stage

_ROLLOUT = "actor_rollout_ref.rollout"
_ROWS = 16
_ANSWER = "The answer is 2.\n#### 2"
_WORKERS = (
    "verl.experimental.agent_loop.agent_loop:AgentLoopWorkerBase",
    "verl.experimental.agent_loop.agent_loop:AgentLoopWorker",
)


@stage("agent loops", "first batch", seconds=60, users=True)
def agent_loops(job: Job) -> None:
    """Run the agent loop of each of the first rows; the engine responds at once."""
    job.outputs = _generated(job, job.batch, validate=False)
    mask = job.outputs.batch["attention_mask"]
    job.lengths = [int(length) for length in mask.sum(dim=1)]


@stage("agent loops in validation", "first validation batch", "agent loops", seconds=60, users=True)
def in_validation(job: Job) -> None:
    """Do the same for the first rows of the validation data."""
    job.validation_outputs = _generated(job, job.validation_batch, validate=True)


def _generated(job: Job, batch: Any, *, validate: bool) -> Any:
    if job.kind != "ppo":
        raise NotNeededError("an SFT job has no agent loops")
    if job.value(f"{_ROLLOUT}.mode", "sync") != "async":
        raise NotNeededError("the rollout is not asynchronous, so there are no agent loops")
    worker = _worker(job)
    rows = _longest_first(batch)[:_ROWS]
    part = batch.select_idxs(rows) if hasattr(batch, "select_idxs") else batch[: len(rows)]
    part.meta_info = {**part.meta_info, "validate": validate, "global_steps": 0}
    return asyncio.run(worker.generate_sequences(part))


def _worker(job: Job) -> Any:
    if (made := job.notes.get("agent worker")) is not None:
        return made
    cls = plain(find(*_WORKERS))
    client = _Client(job)
    given: dict[str, Any] = {"config": job.config, "llm_client": client, "server_manager": client}
    given |= dict.fromkeys(
        ("teacher_client", "reward_loop_worker_handles", "reward_router_address", "rm_executor")
    )
    given |= {"server_handles": [], "servers": [], "load_balancer_handle": client}
    with mock.patch("verl.experimental.agent_loop.agent_loop.ray", _Rayless()):
        worker = cls(**taken(cls.__init__, given))
    for name in ("llm_client", "server_manager"):
        if hasattr(worker, name):
            setattr(worker, name, client)
    if hasattr(worker, "reward_manager_worker"):
        worker.reward_manager_worker = None
    job.notes["agent worker"] = worker
    return worker


class _Rayless(mock.MagicMock):
    """Stands in for Ray where an agent loop worker queries its identity."""


def _longest_first(batch: Any) -> list[int]:
    prompts = batch.non_tensor_batch.get("raw_prompt") if hasattr(batch, "non_tensor_batch") else None
    if prompts is None:
        return list(range(len(batch)))
    sizes = [len(str(prompt)) for prompt in prompts]
    return sorted(range(len(sizes)), key=lambda row: -sizes[row])


class _Client:
    """The source of tokens for agent loops.

    It is verl's own server with a canned engine, or canned tokens if no server was made.
    """

    def __init__(self, job: Job) -> None:
        tokenizer = job.tokenizer
        tokens = list(tokenizer.encode(_ANSWER, add_special_tokens=False))
        if tokenizer.eos_token_id is not None:
            tokens.append(tokenizer.eos_token_id)
        self._tokens = tokens
        self.tokenizer = tokenizer
        self._server = job.server if "engine" in job.notes else None
        if self._server is not None:
            self._server.engine = CannedEngine(tokens)

    async def generate(self, **request: Any) -> Any:
        """Return the tokens of one response."""
        if self._server is not None:
            known = inspect.signature(self._server.generate).parameters
            return await self._server.generate(**{k: v for k, v in request.items() if k in known})
        return self._canned(request)

    def _canned(self, request: dict[str, Any]) -> Any:
        try:
            output = find("verl.workers.rollout.replica:TokenOutput")
        except NotHereError:
            return list(self._tokens)
        with_logprobs = bool(request.get("sampling_params", {}).get("logprobs"))
        more = {"log_probs": [-1.0] * len(self._tokens)} if with_logprobs else {}
        return output(token_ids=list(self._tokens), **more)
