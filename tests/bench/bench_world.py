"""The bytes that `check --deep` computes for one rank, beside those that a GPU shows.

    ENVIRONMENT/bin/python tests/bench/bench_world.py [--sizes 0.5B,1.5B,4B] [--ranks 1] [--write tests/bench/WORLD.md]

ENVIRONMENT has verl 0.9 with its requirements; verl-doctor need not be installed there, this file runs from a checkout. For each size a
model with random weights is made on the spot. verl's own FSDP engine loads it and takes one step of the optimizer; after the load, the
backward pass and the step `torch.cuda.memory_allocated` is read, and its peak within the step. The prediction is the stage "world" of the
construction. It needs no network, one GPU for each rank, and takes less than three minutes on one H200.

`tests/end_to_end/test_world_real.py` does it with a small model on processors, where nothing counts memory: the bytes are those of the
engine's own tensors.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve()
_TOOLKIT = _HERE.parents[2] / "toolkit"
_TOKEN = "bench-world "  # before each line of JSON
_LIMIT = 280.0  # seconds of one child
_TOLERANCE = 0.15

_HEADING = """# Computed beside measured bytes of one rank

Computed by the stage "world" of `check --deep`, without a GPU. Measured with `torch.cuda.memory_allocated` around one step of verl's own
FSDP engine, on models with random weights. Before the backward pass ends no activations are counted."""

_MODELS: Mapping[str, Mapping[str, int]] = {
    "tiny": {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
    "0.5B": {"vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2},
    "1.5B": {"vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2},
    "4B": {"vocab_size": 151936, "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8},
}  # fmt: skip
_ACTOR = "actor_rollout_ref.actor"
_FSDP = f"{_ACTOR}.fsdp_config"
WAYS: Mapping[str, tuple[str, ...]] = {
    "fsdp": (f"{_ACTOR}.strategy=fsdp",),
    "fsdp2": (f"{_ACTOR}.strategy=fsdp2",),
    "fsdp2 offloaded": (f"{_ACTOR}.strategy=fsdp2", f"{_FSDP}.param_offload=True", f"{_FSDP}.optimizer_offload=True"),
    "fsdp2 in bf16": (f"{_ACTOR}.strategy=fsdp2", f"{_FSDP}.model_dtype=bf16"),
}  # fmt: skip
_NEEDED = frozenset({"composition", "import", "resolution", "model", "world"})
_MOMENTS = ("loaded", "backward", "peak", "stepped", "left")


def main() -> None:
    parser = argparse.ArgumentParser(description="computed beside measured bytes of one rank")
    parser.add_argument("--sizes", default="0.5B,1.5B,4B")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        order = json.loads(options.measure)
        if isinstance(order, list):
            _forked(order)
        else:
            _measure(order)
        return
    with tempfile.TemporaryDirectory() as folder:
        text, good = _table(Path(folder), options.sizes.split(","), options.ranks)
    print(text)
    if options.write:
        options.write.write_text(f"{_HEADING}\n\n{text}\n")
    parser.exit(0 if good else 1)


def _table(folder: Path, sizes: list[str], ranks: int) -> tuple[str, bool]:
    begun = time.monotonic()
    for size in sizes:
        make_model(folder / size, size)
    cases = [(size, way) for size in sizes for way in WAYS]
    with ThreadPoolExecutor(6) as pool:
        predictions = dict(
            zip(cases, pool.map(lambda case: _predicted(folder, *case, ranks), cases), strict=True)
        )
        measured = _measured(folder, cases, ranks)
    lines = [
        "| model | way | moment | predicted MiB | measured MiB | off by |",
        "|---|---|---|---:|---:|---:|",
    ]
    worst = 0.0
    for case in cases:
        for moment in _MOMENTS:
            computed, seen = predictions[case][moment], measured[case][moment]
            off = (computed - seen) / seen if seen > 64 << 20 else 0.0
            worst = max(worst, abs(off))
            lines.append(
                f"| {case[0]} | {case[1]} | {moment} | {computed / 2**20:,.1f} | {seen / 2**20:,.1f} | {off:+.1%} |"
            )
    device = measured[cases[0]]["device"]
    lines += [
        "",
        f"{ranks} rank(s) on {device}; {time.monotonic() - begun:.0f} s; the worst is off by {worst:.1%}.",
    ]
    return "\n".join(lines), worst <= _TOLERANCE


def words(folder: Path, size: str, way: str, ranks: int) -> list[str]:
    """The words of a job that trains the model in `folder/size`."""
    model = folder / size
    return [
        "algorithm.adv_estimator=grpo", f"data.train_files={model}/none.parquet", f"data.val_files={model}/none.parquet",
        f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.model.use_remove_padding=False",
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa", f"{_ACTOR}.ppo_mini_batch_size={ranks}",
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu=1", f"{_ACTOR}.optim.total_training_steps=1", f"data.train_batch_size={ranks}",
        "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1", f"trainer.n_gpus_per_node={ranks}", "trainer.nnodes=1",
        *WAYS[way],
    ]  # fmt: skip


def make_model(folder: Path, size: str) -> None:
    """A configuration of Qwen2 and a small tokenizer, without a weight."""
    folder.mkdir()
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
        "max_position_embeddings": 4096, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, **_MODELS[size],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = {
        "version": "1.0", "added_tokens": [{"id": 0, "content": "<end>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
        "model": {"type": "WordLevel", "vocab": {"<end>": 0, "a": 1}, "unk_token": "<end>"},
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<end>",
        "pad_token": "<end>",
        "chat_template": "{{ messages }}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told))


def _predicted(folder: Path, size: str, way: str, ranks: int) -> dict[str, int]:
    """What the construction computes, for the moments that are measured."""
    import importlib.util

    found = importlib.util.find_spec("verl")
    if found is None or found.origin is None:
        raise SystemExit(f"{sys.executable} has no verl")
    tree = Path(found.origin).parent
    stages = _stages()
    request = {
        "folder": str(folder), "tree": str(tree.parent), "module": "verl.trainer.main_ppo", "config_folder": str(tree / "trainer/config"),
        "config_name": "ppo_trainer", "overrides": words(folder, size, way, ranks), "environ": {},
        "package": str(_TOOLKIT / "probes/construction"), "skip": [name for name in stages if name not in _NEEDED],
    }  # fmt: skip
    private = Path(tempfile.mkdtemp(dir=folder))
    code = (_TOOLKIT / "probes/construct.py").read_text()
    done = subprocess.run(
        [sys.executable, "-c", code, _TOKEN, json.dumps(request)],
        cwd=private, env=_environ(), capture_output=True, text=True, check=False, timeout=_LIMIT,
    )  # fmt: skip
    events = [
        json.loads(line.removeprefix(_TOKEN)) for line in done.stdout.splitlines() if line.startswith(_TOKEN)
    ]
    world = events[-1].get("world") if events else None
    if not world:
        raise SystemExit(f"{size} {way}: nothing is predicted: {events[-1:]} {done.stderr[-2000:]}")
    return at_moments(next(share for share in world["shares"] if share["name"] == "actor"))


def at_moments(actor: Mapping[str, Any]) -> dict[str, int]:
    """The bytes of one rank at each moment that is measured, from what the construction computed of its share."""
    weights, gradients, states = actor["weights"], actor["gradients"], actor["states"]
    return {
        "loaded": weights * (actor["weights_away"] == "no"),
        "backward": weights + gradients,
        "peak": weights + gradients + states + actor["temporary"],
        "stepped": weights + gradients + states,
        "left": weights * (actor["weights_away"] == "no") + states * (actor["states_away"] == "no"),
    }


def _stages() -> list[str]:
    """The names of all stages, as their files have them."""
    import re

    files = (_TOOLKIT / "probes/construction").glob("stage_*.py")
    return [
        name
        for file in files
        for name in re.findall(r'^@stage\(\s*"([^"]+)"', file.read_text(), re.MULTILINE)
    ]


def _environ() -> dict[str, str]:
    # The checkout has folders whose names are those of packages.
    return {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _measured(
    folder: Path, cases: list[tuple[str, str]], ranks: int
) -> dict[tuple[str, str], dict[str, Any]]:
    """Rank 0's bytes of all cases: one process for each rank takes them one after the other."""
    order = {"cases": [{"name": case, "words": words(folder, *case, ranks)} for case in map(list, cases)]}
    begun = []
    for rank in range(ranks):
        with (folder / f"rank{rank}.txt").open("w") as file:
            mine = {**_environ(), **_of_rank(rank, ranks, free_port())}
            command = [sys.executable, str(_HERE), "--measure", json.dumps(order)]
            begun.append(
                subprocess.Popen(command, cwd=folder, env=mine, stdout=file, stderr=subprocess.STDOUT)
            )
    try:
        codes = [process.wait(timeout=_LIMIT) for process in begun]
    finally:
        for process in begun:
            process.kill()
    text = (folder / "rank0.txt").read_text()
    if any(codes):
        raise SystemExit(f"the engine could not be measured: {text[-4000:]}")
    return {tuple(row["name"]): row for row in _rows(text)}


def measured_on_processors(
    python: Path, folder: Path, cases: Mapping[int, list[list[str]]]
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Rank 0's bytes on processors: of cases (size, way) for each number of ranks, with the number as the last part of the name.

    One process imports verl, and forks all ranks.
    """
    order = [
        {
            "dry": True,
            "ranks": ranks,
            "port": free_port(),
            "cases": [{"name": [*case, str(ranks)], "words": words(folder, *case, ranks)} for case in some],
        }
        for ranks, some in cases.items()
    ]
    environ = {
        **_environ(),
        "OMP_NUM_THREADS": "1",
        "VERL_ENGINE_DEVICE": "cuda",
        "VERL_PLATFORM": "verl_doctor_cpu",
        "GLOO_SOCKET_IFNAME": "lo",
        "VERL_USE_EXTERNAL_MODULES": "verl_doctor_rehearsal.cpu_platform",
        "PYTHONPATH": str(_TOOLKIT / "data/rehearsal"),
    }
    done = subprocess.run(
        [str(python), str(_HERE), "--measure", json.dumps(order)],
        cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=_LIMIT,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the engine could not be measured: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return {tuple(row["name"]): row for row in _rows(done.stdout)}


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _of_rank(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
    }


def _rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(_TOKEN)) for line in text.splitlines() if line.startswith(_TOKEN)]


def _forked(orders: list[Mapping[str, Any]]) -> None:
    """Import what takes long, and measure in a fork for each rank. When a rank fails, the others are ended."""
    import torch
    import verl.workers.engine  # noqa: F401 - with its FSDP engine
    from transformers.models.qwen2 import modeling_qwen2  # noqa: F401 - that of the model

    assert torch
    for order in orders:
        ranks = {_fork(order, rank) for rank in range(order["ranks"])}
        while ranks:
            pid, status = os.wait()
            ranks.discard(pid)
            if status:
                for rank in ranks:
                    os.kill(rank, signal.SIGKILL)
                raise SystemExit("a rank failed")


def _fork(order: Mapping[str, Any], rank: int) -> int:
    """The number of the process that measures as this rank."""
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(_of_rank(rank, order["ranks"], order["port"]))
    code = 1
    try:
        _measure(order)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)


def _measure(order: Mapping[str, Any]) -> None:
    """In a process of its own: load each model by verl's engine, take a step, and print the bytes."""
    import torch
    import verl  # noqa: F401 - it registers its platforms
    from hydra import compose, initialize_config_dir
    from transformers import PreTrainedModel

    tree = Path(sys.modules["verl"].__file__ or "").parent
    dry = order.get("dry", False)
    rank = int(os.environ["RANK"])
    if not dry:
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group("gloo" if dry else "cpu:gloo,cuda:nccl")
    PreTrainedModel.from_pretrained = classmethod(_random)
    if dry:
        _wrap_on_processors()
    device = "processors" if dry else torch.cuda.get_device_name()
    for case in order["cases"]:
        with initialize_config_dir(config_dir=str(tree / "trainer/config"), version_base=None):
            config = compose(config_name="ppo_trainer", overrides=case["words"])
        found = dict(_moments(config, dry=dry))
        if rank == 0:
            print(f"\n{_TOKEN}{json.dumps({'name': case['name'], 'device': device, **found})}", flush=True)
    torch.distributed.destroy_process_group()


def _wrap_on_processors() -> None:
    """Let each rank have weights of its own: FSDP1 sends those of rank 0 to the others between GPUs only."""
    import torch
    from torch.distributed.fsdp import FullyShardedDataParallel

    begin = FullyShardedDataParallel.__init__

    def init(self: Any, *given: Any, **more: Any) -> None:
        begin(self, *given, **{**more, "sync_module_states": False})
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.normal_(std=0.02)

    FullyShardedDataParallel.__init__ = init


def _random(cls: Any, _path: Any = None, *_: Any, config: Any = None, **more: Any) -> Any:
    """A model with random weights, made on the GPU, where that takes no time, and brought to where verl wants it."""
    import torch

    dtype = more.get("torch_dtype", more.get("dtype"))
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = cls._from_config(config, torch_dtype=dtype, attn_implementation="sdpa")
    if any(parameter.is_meta for parameter in model.parameters()):
        return model
    with (
        torch.no_grad()
    ):  # memory that nobody wrote to may hold NaN, and verl leaves out a step whose gradients do
        for parameter in model.parameters():
            parameter.normal_(std=0.02)
    return model.to("cpu")


def _moments(config: Any, *, dry: bool) -> Iterator[tuple[str, int]]:
    import torch
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine import EngineRegistry

    def used() -> int:
        return _bytes(engine) if dry else torch.cuda.memory_allocated() - before

    gc.collect()
    if not dry:
        torch.cuda.empty_cache()
    before = 0 if dry else torch.cuda.memory_allocated()
    model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    actor.model_config = model
    actor.engine.use_remove_padding = False
    engine = EngineRegistry.new(
        model_type="language_model",
        backend=actor.engine.strategy,
        model_config=model,
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    engine.initialize()
    gc.collect()
    yield "loaded", used()
    device = "cpu" if dry else "cuda"
    words = torch.arange(64, device=device)[None] % model.hf_config.vocab_size
    with engine.train_mode():
        engine.optimizer_zero_grad()
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            loss = engine.module(input_ids=words, labels=words, use_cache=False).loss
        loss.backward()
        del loss
        gc.collect()
        yield "backward", used()
        if not dry:
            torch.cuda.reset_peak_memory_stats()
        norm = float(engine.optimizer_step())
        if norm != norm or norm == float("inf"):
            raise SystemExit(f"the norm of the gradients is {norm}: verl left the step out")
        if not dry:
            yield "peak", torch.cuda.max_memory_allocated() - before
        yield "stepped", used()
    gc.collect()
    yield "left", used()


def _bytes(engine: Any) -> int:
    """The bytes of the tensors that an engine keeps on the device: on processors all of them are, so offloaded ones are left out."""
    import torch

    local = lambda one: getattr(one, "_local_tensor", one)  # noqa: E731
    own = list(engine.module.parameters())
    states = [
        tensor
        for state in engine.optimizer.state.values()
        for tensor in state.values()
        if isinstance(tensor, torch.Tensor) and tensor.ndim
    ]
    every = [
        *own,
        *engine.module.buffers(),
        *(tensor.grad for tensor in own if tensor.grad is not None),
        *states,
    ]
    return sum(local(tensor).numel() * tensor.element_size() for tensor in every)


if __name__ == "__main__":
    if shlex.join(sys.argv).find("--measure") > 0:
        sys.path.pop(0)  # the folder of this file
    main()
