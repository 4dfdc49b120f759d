"""A verl of a few lines that gives variables to its job as the real one does."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from verl_doctor.toolkit.sources.python.source import SourceTree

MAIN = """
    import os
    import ray
    from omegaconf import OmegaConf
    from verl.trainer.given import runtime_env

    @hydra.main(config_path="config")
    def main(config):
        run(config)

    def run(config):
        if config.seed.fixed:
            os.environ["PYTHONHASHSEED"] = str(config.seed.value)
        if not ray.is_initialized():
            ours = runtime_env(config)
            theirs = config.ray_kwargs.ray_init.get("runtime_env", {})
            merged = OmegaConf.merge(ours, theirs)
            kwargs = OmegaConf.create({**config.ray_kwargs.ray_init, "runtime_env": merged})
            ray.init(**OmegaConf.to_container(kwargs))

    if __name__ == "__main__":
        main()
    """
GIVEN = """
    import os
    from verl.utils.device import get_device_capability

    major, _ = get_device_capability()
    ENV = {"env_vars": {"NCCL_DEBUG": "WARN", "VLLM_LOGGING_LEVEL": "WARN"}}

    def runtime_env(config=None):
        found = {"env_vars": ENV["env_vars"].copy()}
        if (major or 0) in (8, 9):
            found["env_vars"]["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
        for key in list(found["env_vars"]):
            if os.environ.get(key) is not None:
                found["env_vars"].pop(key, None)
        found["env_vars"]["FORCED"] = "1"
        return found
    """
BASE = """
    class RayWorkerGroup:
        def _create_worker(self, rank, ray_class):
            env_vars = {"RANK": str(rank), "WG_BACKEND": "ray"}
            if rank == 0:
                env_vars["MASTER_PORT"] = self._port
            ray_class.update_options({"runtime_env": {"env_vars": env_vars}, "name": "x"})
    """
SERVER = """
    import os

    class Replica:
        async def launch(self):
            for node in range(self.nnodes):
                env_vars = {"NCCL_CUMEM_ENABLE": os.environ.get("NCCL_CUMEM_ENABLE", "0")}
                self.actor.options(runtime_env={"env_vars": env_vars}).remote()
            os.environ["LATER"] = "1"
            os.environ.pop("GONE", None)
    """
ELSEWHERE = "import os\nos.environ['ELSEWHERE'] = '1'\n"


def small_verl(folder: Path) -> SourceTree:
    """Write it below a folder."""
    files = {
        "trainer/main_ppo.py": MAIN,
        "trainer/given.py": GIVEN,
        "utils/device.py": "",
        "single_controller/ray/base.py": BASE,
        "workers/rollout/vllm_rollout/vllm_async_server.py": SERVER,
        "workers/rollout/sglang_rollout/sglang_rollout.py": ELSEWHERE,
        "workers/megatron_workers.py": ELSEWHERE,
        "__init__.py": "import os\nos.environ.setdefault('SET_BY_IMPORT', '0')\n",
    }
    for name, text in files.items():
        path = folder / "verl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    for below in [path for path in (folder / "verl").rglob("*") if path.is_dir()]:
        (below / "__init__.py").touch()
    return SourceTree(folder / "verl", "verl")
