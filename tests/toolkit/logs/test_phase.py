"""The phase of an exception, from its traceback and that of the driver."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.running import Doctor
from support.schemas import validate

from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.lines import log_lines
from verl_doctor.toolkit.rule import PHASES, WHEN

SITE = "/env/lib/python3.11/site-packages"
HYDRA = (f"{SITE}/hydra/_internal/utils.py _run_hydra", f"{SITE}/hydra/core/utils.py run_job")
MAIN = (*HYDRA, f"{SITE}/verl/trainer/main_ppo.py main")
RUN = (*MAIN, f"{SITE}/verl/trainer/main_ppo.py run_ppo", f"{SITE}/ray/_private/worker.py get")
REMOTE = "ray::TaskRunnerV1.run() (pid=5, ip=10.0.0.1)"
FIT = f"{SITE}/verl/trainer/ppo/ray_trainer.py fit"
TUNE = (*HYDRA, f"{SITE}/verl/trainer/sft_trainer.py main", f"{SITE}/verl/trainer/sft_trainer.py run_sft")


def places(*named: str) -> str:
    return "".join(
        f'  File "{path}", line 3, in {function}\n    call()\n'
        for path, _, function in (place.partition(" ") for place in named)
    )


def of_driver(*named: str, error: str = "JudgeError: no") -> str:
    return f"Traceback (most recent call last):\n{places(*named)}{error}\n"


def of_runner(*named: str) -> str:
    """An exception of the task runner, as Ray passes it on."""
    return f"Traceback (most recent call last):\n{places(*RUN)}ray.exceptions.RayTaskError(JudgeError): {REMOTE}\n{places(*named)}JudgeError: no\n"


LOGS = {
    "a module that breaks": (of_driver(f"{SITE}/verl/trainer/main_ppo.py <module>", "/home/u/random.py <module>"), "import"),
    "python -m": ("/env/bin/python: No module named verl.trainer.ppo_main\n", "import"),
    "a package above a module": (of_driver("<frozen runpy> _get_module_details", f"{SITE}/verl/__init__.py <module>"), "import"),
    "a module that runpy does not find": ("/env/bin/python3: Error while finding module specification for 'recipe.x' (ModuleNotFoundError: No module named 'recipe')\n", "import"),
    "Python itself": ("Fatal Python error: init_fs_encoding: failed to get the codec\nModuleNotFoundError: No module named 'encodings'\n", "import"),
    "torchrun's options": (of_driver(f"{SITE}/torch/distributed/run.py config_from_args", f"{SITE}/torch/distributed/run.py determine"), "import"),
    "a file that YAML refuses": (of_driver(HYDRA[0], f"{SITE}/hydra/_internal/hydra.py compose_config", f"{SITE}/yaml/scanner.py fetch"), "composition"),
    "a warning as an error": (of_driver(*MAIN, f"{SITE}/verl/trainer/ppo/utils.py need_critic", error="UserWarning: no"), "validation"),
    "Hydra's own": (of_driver(HYDRA[0], f"{SITE}/hydra/_internal/config_loader_impl.py load", error="hydra.errors.MissingConfigException: no"), "composition"),
    "Hydra's folder": (of_driver(*HYDRA, "/usr/lib/python3.11/pathlib.py mkdir"), "composition"),
    "verl validates": (of_driver(*MAIN, f"{SITE}/verl/utils/config.py validate_config"), "validation"),
    "verl 0.8 validates in its runner": (of_runner(f"{SITE}/verl/trainer/main_ppo.py run", f"{SITE}/verl/utils/config.py validate_config"), "validation"),
    "Ray starts": (of_driver(*MAIN, f"{SITE}/ray/_private/worker.py init", f"{SITE}/ray/_private/node.py start"), "ray"),
    "the runner": (of_runner(f"{SITE}/verl/trainer/main_ppo.py run", f"{SITE}/verl/utils/dataset/rl_dataset.py read"), "workers"),
    "fine-tuning": (of_driver(*TUNE, f"{SITE}/verl/utils/dataset/sft.py read"), "workers"),
    "servers of the engine": (of_runner(f"{SITE}/verl/workers/rollout/llm_server.py create", f"{SITE}/verl/workers/rollout/replica.py init_hybrid"), "engine"),
    "resuming": (of_runner(f"{SITE}/verl/trainer/ppo/v1/trainer_base.py _setup", f"{SITE}/verl/trainer/ppo/v1/trainer_base.py _load_checkpoint"), "engine"),
    "its process": ("".join(f"(EngineCore pid=4) {line}\n" for line in of_driver(f"{SITE}/json.py load").splitlines()), "engine"),
    "a batch": (of_runner(FIT, f"{SITE}/verl/utils/seqlen_balancing.py rearrange"), "first batch"),
    "a worker's batch": ("Training Progress:   0%|\n" + "".join(f"(AgentLoopWorker pid=4) {line}\n" for line in of_driver(f"{SITE}/json.py load").splitlines()), "first batch"),
    "an update": (of_runner(FIT, f"{SITE}/verl/workers/actor/dp_actor.py update_policy"), "first update"),
    "a validation": (of_runner(FIT, f"{SITE}/verl/trainer/ppo/ray_trainer.py _validate"), "first validation"),
    "an excerpt that begins later": ("Training Progress:  33%|###| 66/201\n" + of_runner(f"{SITE}/verl/utils/c.py save_checkpoint"), "checkpoint"),
    "a checkpoint": (of_driver(*TUNE, f"{SITE}/verl/trainer/sft_trainer.py fit", f"{SITE}/verl/utils/c.py save_checkpoint"), "checkpoint"),
    "somewhere": ("".join(f"{line}\n" for line in of_driver("/home/u/tool.py f").splitlines()), None),
}  # fmt: skip


@pytest.mark.parametrize(("log", "phase"), LOGS.values(), ids=LOGS)
def test_frames_determine_the_phase(log: str, phase: str | None) -> None:
    first = read(list(log_lines(log)), "run.log").first
    assert first is not None
    assert first.phase == phase


def test_phase_is_shown_in_json_and_text(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(LOGS["verl validates"][0])
    found = json.loads(here("logs", "run.log", "--format", "json", cwd=tmp_path).stdout)
    validate(found, schema_text("logs"))
    (result,) = found["results"]
    assert (result["code"], result["fault"], result["findings"][0]["phase"]) == (
        "LOG160",
        "configuration",
        "validation",
    )
    done = here("logs", "run.log", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("YOUR CONFIGURATION  LOG160: ")
    assert "(when verl validates its configuration)" in " ".join(done.stdout.split())
    assert "\n  verl-doctor check LAUNCH_SCRIPT\n" in done.stdout


def test_failure_after_the_first_step_is_not_at_the_start(here: Doctor, tmp_path: Path) -> None:
    for name, phase in (("an update", None), ("a checkpoint", "checkpoint")):
        (tmp_path / "run.log").write_text(f"step:1 - a:1\n{LOGS[name][0]}")
        found = json.loads(here("logs", "run.log", "--format", "json", cwd=tmp_path).stdout)
        assert found["results"][0]["findings"][0]["phase"] == phase


def test_schema_contains_every_phase() -> None:
    schema = json.loads(schema_text("logs"))
    assert schema["$defs"]["FindingDocument"]["properties"]["phase"]["enum"] == [*PHASES, None]
    assert WHEN.keys() == set(PHASES)
