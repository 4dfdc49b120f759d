"""Builds logs like those of verl runs from a few parts: noise, prefixes of workers, a fault, and its consequences."""

from __future__ import annotations

RAY = "\x1b[36m(WorkerDict pid=4711, ip=10.0.0.2)\x1b[0m "
ENGINE = "(EngineCore_DP0 pid=811) ERROR 11-20 10:00:07 [core.py:708] "
RANK = "[rank3]: "

NOISE = """\
2026-11-20 10:00:00,100 INFO worker.py:1927 -- Started a local Ray instance. View the dashboard at http://127.0.0.1:8265
+ export VLLM_ATTENTION_BACKEND=XFORMERS NCCL_SOCKET_IFNAME=eth0 CUDA_DEVICE_MAX_CONNECTIONS=1
n1:4711:4999 [0] NCCL INFO Allocated 4194656 bytes of shared memory in /dev/shm/nccl-Ss37Jo
2026-11-20 10:00:00.485432: W tensorflow/dso_loader.cc:64] Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open shared object file: No such file or directory
{'actor_rollout_ref': {'rollout': {'name': 'vllm', 'gpu_memory_utilization': 0.6, 'error_if_missing': False}}}
\x1b[36m(TaskRunner pid=4001)\x1b[0m WARNING 11-20 10:00:03 [cuda.py:1] no tuned kernel was found, and nothing failed
\x1b[36m(WorkerDict pid=4712, ip=10.0.0.3)\x1b[0m INFO 11-20 10:00:04 [gpu_worker.py:1] Available KV cache memory: 101.5 GiB\x1b[32m [repeated 7x across cluster]\x1b[0m
Loading safetensors checkpoint shards:  50% Completed | 1/2\rLoading safetensors checkpoint shards: 100% Completed | 2/2
\x1b[36m(TaskRunner pid=4001)\x1b[0m /venv/lib/verl/engine/__init__.py:60: UserWarning: megatron is not available: ModuleNotFoundError("No module named 'megatron'")
\x1b[36m(WorkerDict pid=4711)\x1b[0m Warning: Failed to set NUMA affinity: libnuma.so: cannot open shared object file: No such file or directory
\x1b[36m(WorkerDict pid=4711)\x1b[0m WARNING:2026-11-20 10:00:06,000:Failed to import an extension: No module named 'vllm._x_C'
step:1 - actor/pg_loss:0.01 - critic/score/mean:0.25 - num_errors:0
"""
DRIVER_SAW_IT = """\
Error executing job with overrides: ['trainer.nnodes=1', 'data.train_batch_size=64', '+ray_kwargs.ray_init.runtime_env.env_vars.PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True']
Traceback (most recent call last):
  File "/src/verl/trainer/main_ppo.py", line 64, in run_ppo
    ray.get(runner.run.remote(config))
  File "/venv/lib/python3.11/site-packages/ray/_private/worker.py", line 2900, in get
    raise value
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
	class_name: WorkerDict
	actor_id: 0f3a
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly due to SIGSEGV or another unexpected error.
"""
OTHERS_WAITED = """\
[rank1]:[E1120 10:10:00.123 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8123, OpType=ALLREDUCE, NumelIn=1) ran for 600029 milliseconds before timing out.
[rank1]:[E1120 10:10:00.200 ProcessGroupNCCL.cpp:681] [Rank 1] To avoid data inconsistency, we are taking the entire process down.
"""


def traceback(error: str, *, place: str = "/src/verl/workers/fsdp_workers.py") -> str:
    """An error with its traceback."""
    return f'Traceback (most recent call last):\n  File "{place}", line 630, in init_model\n    self._build()\n{error}\n'


def spoken(text: str, prefix: str) -> str:
    """Return the same lines with this prefix."""
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


def is_raised(log: str) -> bool:
    """Return whether a log is the last line of a traceback and nothing else."""
    kind = log.partition(":")[0].rpartition(".")[2]
    return kind.isidentifier() and kind.endswith(("Error", "Invalid", "Exception", "Interrupt"))


def told_by(log: str, prefix: str = "", *, after: str = DRIVER_SAW_IT) -> str:
    """Return the log of a whole run that contains this text."""
    said = traceback(log) if is_raised(log) else log
    return f"{NOISE}{spoken(said, prefix)}{NOISE if prefix else ''}{after}"
