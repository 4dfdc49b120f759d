"""Out of memory: the stage follows from the running functions, and determines the remedy."""

from __future__ import annotations

import io

import pytest
from support.logs.builder import RAY, spoken

from verl_doctor.toolkit.logs.causes import remedy_of
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.logged_error import LoggedError

FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def cause_of(text: str) -> LoggedError:
    (cause,) = read(excerpt(io.BytesIO(text.encode()).read).lines, "run.log").causes
    return cause


def raised_in(*functions: str) -> str:
    frames = "".join(
        f'  File "/src/verl/workers/a.py", line 1, in {name}\n    self.x()\n' for name in functions
    )
    return spoken(f"Traceback (most recent call last):\n{frames}{FULL}", RAY)


@pytest.mark.parametrize(
    ("functions", "stage", "word"),
    [
        (("init_model", "_build_rollout", "determine_available_memory"), "engine", "gpu_memory_utilization"),
        (("init_model", "_build_model_optimizer"), "load", "param_offload"),
        (("generate_sequences", "rollout_mode", "wake_up"), "wake", "free_cache_engine"),
        (("generate_sequences", "execute_model"), "rollout", "max_num_seqs"),
        (("compute_log_prob", "forward"), "log_prob", "log_prob_micro_batch_size_per_gpu"),
        (("update_actor", "update_policy", "backward"), "update", "ppo_micro_batch_size_per_gpu"),
        (("save_checkpoint",), "checkpoint", "save_contents"),
        (("forward",), "", "a smaller batch size"),
    ],
)
def test_out_of_memory_advice_depends_on_the_stage(functions: tuple[str, ...], stage: str, word: str) -> None:
    cause = cause_of(raised_in(*functions))
    assert cause.stage == stage
    assert word in remedy_of(cause)


def test_method_named_by_ray_shows_the_stage() -> None:
    told_by_ray = "ray.exceptions.RayTaskError(OutOfMemoryError): ray::WorkerDict.actor_rollout_update_actor() (pid=8, ip=10.0.0.2)\n"
    frame = '  File "/src/verl/trainer/ppo/ray_trainer.py", line 1, in fit\n    self.x()\n'
    assert cause_of(f"Traceback (most recent call last):\n{frame}{told_by_ray}").stage == "update"


def test_last_code_line_of_a_truncated_traceback_shows_the_error() -> None:
    cut = (
        'Traceback (most recent call last):\n  File "/v/vllm/v1/core/kv_cache_utils.py", line 699, in check\n'
        '    raise ValueError("No available memory for the cache blocks. "\n                     "Try increasing it.")\n'
    )
    cause = cause_of(spoken(cut, RAY))
    assert cause.signature is not None
    assert cause.signature.code == "CUDA157"
