"""Value of each variable in a worker, its origin, and where it is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.miniatures.small_verl import small_verl

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.gpu.gpus import Device, Gpus
from verl_doctor.toolkit.collectors.gpu.kinds import GpuKinds, gpu_kinds
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import as_far_as_shown
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.collectors.processes.processes import Process, Processes
from verl_doctor.toolkit.collectors.processes.raylets import raylets
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    WITHHELD,
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.collectors.variables.effective_reader import resolved_environment
from verl_doctor.toolkit.collectors.variables.job_parties import Parties
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.testing import run_check

NONE = Absent("none")
RAY_SOURCE = """
import os

def set_threads_if_unset():
    if os.environ.get("OMP_NUM_THREADS") is None:
        os.environ["OMP_NUM_THREADS"] = str(1)
"""


class Job:
    """A job on a machine that lies below a folder, put together step by step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = small_verl(folder / "site")
        configuration = {
            "seed": {"fixed": False, "value": 7},
            "ray_kwargs": {"ray_init": {"address": None}},
        }
        verl = VerlTrees(Tree(str(self.tree.folder), "verl", "1", "site-packages"), "")
        self.parties = Parties(
            Machine(environ={"RAY_TMPDIR": "/t"}, root=folder, cwd=folder),
            Absent("no launch script was named"),
            Configuration("", "", "", (), configuration, configuration),
            verl,
            NONE,
            NONE,
            NONE,
            Unknown("not asked"),
        )

    def shell(self, **environ: str) -> Job:
        """Variables of this shell."""
        machine = self.parties.machine
        self.parties = replace(
            self.parties, machine=replace(machine, environ={"RAY_TMPDIR": "/t", **environ})
        )
        return self

    def script(self, text: str) -> Job:
        """A launch script."""
        path = self.folder / "run.sh"
        path.write_text(text)
        target = Target(Path("/p"), "--python", files=(path,))
        found = launch.collect(target, self.parties.machine)
        assert isinstance(found, Launch)
        self.parties = replace(self.parties, launch=found)
        return self

    def raylet(self, pid: int = 7, at: str = "10.0.0.1:6379", **environ: str) -> Job:
        """A running one, marked as the last that was started."""
        proc = self.folder / "proc" / str(pid)
        proc.mkdir(parents=True)
        proc.joinpath("cmdline").write_text(f"raylet\0--gcs-address={at}\0--node_ip_address=10.0.0.2")
        proc.joinpath("environ").write_text("".join(f"{name}={value}\0" for name, value in environ.items()))
        (self.folder / "t" / "ray").mkdir(parents=True, exist_ok=True)
        (self.folder / "t" / "ray" / "ray_current_cluster").write_text(at)
        numbers = [int(path.name) for path in (self.folder / "proc").iterdir()]
        running = tuple(Process(number, 1, "raylet", "raylet", True, 0.0) for number in numbers)
        found = raylets.collect(Processes(running), self.parties.machine)
        self.parties = replace(self.parties, raylets=found)
        return self

    def ray(self, **files: str) -> Job:
        """An installed Ray with these sources."""
        folder = self.folder / "site" / "ray" / "_private"
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        tree = Tree(str(folder.parent), "ray", "2", "site-packages")
        self.parties = replace(self.parties, libraries=LibraryTrees((tree,)))
        return self

    def configured(self, **more: Any) -> Job:
        """Other keys of verl's configuration."""
        assert isinstance(self.parties.configuration, Configuration)
        after = {**self.parties.configuration.after, **more}
        self.parties = replace(self.parties, configuration=Configuration("", "", "", (), after, after))
        return self

    def row(self, name: str) -> Effective:
        """The row of one variable."""
        found = resolved_environment(self.parties).get(name)
        assert found is not None
        return found

    def seen(self, name: str) -> tuple[str | None, str | None, str | None, str]:
        """Driver, raylet, worker, and the deciding party."""
        row = self.row(name)
        return row.driver.text, row.raylet.text, row.worker.text, row.decided_by


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_shell_variables_reach_workers_of_a_ray_started_by_the_job(job: Job) -> None:
    assert job.shell(NCCL_IB_HCA="mlx5").seen("NCCL_IB_HCA") == ("mlx5", "mlx5", "mlx5", "the driver")
    assert resolved_environment(job.parties).standing == ""


def test_shell_variables_do_not_reach_workers_of_a_running_ray(job: Job) -> None:
    job.shell(NCCL_IB_HCA="mlx5").raylet(PATH="/bin")
    assert job.seen("NCCL_IB_HCA") == ("mlx5", None, None, "nobody")
    assert job.seen("PATH") == (None, "/bin", "/bin", "the raylet")
    assert resolved_environment(job.parties).standing == "10.0.0.1:6379"


def test_verl_drops_its_default_and_the_running_ray_ignores_the_driver(job: Job) -> None:
    job.shell(VLLM_LOGGING_LEVEL="INFO").raylet(PATH="/bin")
    assert job.seen("VLLM_LOGGING_LEVEL") == ("INFO", None, None, "nobody")
    dropped = job.row("VLLM_LOGGING_LEVEL").dropped
    assert dropped is not None
    assert (dropped.value.text, Path(dropped.path).name, dropped.line) == ("WARN", "given.py", 6)


def test_verl_default_arrives_if_the_driver_sets_nothing(job: Job) -> None:
    assert job.raylet(VLLM_LOGGING_LEVEL="DEBUG").seen("VLLM_LOGGING_LEVEL") == (
        None,
        "DEBUG",
        "WARN",
        "verl",
    )
    assert job.row("VLLM_LOGGING_LEVEL").dropped is None


def test_variable_forced_by_verl(job: Job) -> None:
    assert job.shell(FORCED="0").seen("FORCED") == ("0", "0", "1", "verl")


def test_script_sets_and_unsets_variables(job: Job) -> None:
    job.shell(NCCL_DEBUG="INFO", HF_HOME="/a")
    job.script("export HF_HOME=/b\nunset NCCL_DEBUG\npython -m verl.trainer.main_ppo\n")
    assert job.seen("HF_HOME") == ("/b", "/b", "/b", "the driver")
    assert (Path(job.row("HF_HOME").path).name, job.row("HF_HOME").line) == ("run.sh", 1)
    assert job.seen("NCCL_DEBUG") == (None, None, "WARN", "verl")


def test_conditional_setting_of_a_script_is_undetermined(job: Job) -> None:
    job.script("if [ -e /x ]; then export HF_HOME=/b; fi\npython -m verl.trainer.main_ppo\n")
    assert job.row("HF_HOME").driver.is_set is None


def test_script_that_starts_ray_passes_its_variables(job: Job) -> None:
    job.raylet(HF_HOME="/old").script(
        "export HF_HOME=/a\nray start --head\nexport NCCL_IB_HCA=x\npython -m verl.trainer.main_ppo\n"
    )
    assert job.seen("HF_HOME") == ("/a", "/a", "/a", "the raylet")
    assert job.seen("NCCL_IB_HCA") == ("x", None, None, "nobody")


def test_submitted_job_inherits_the_environment_of_the_raylet(job: Job) -> None:
    job.shell(HF_HOME="/mine").ray(worker="X = 'RAY_OVERRIDE_JOB_RUNTIME_ENV'").raylet(HF_HOME="/raylet")
    env = '\'{"env_vars": {"NCCL_IB_HCA": "x", "FORCED": "1", "VLLM_LOGGING_LEVEL": "INFO"}}\''
    job.script(
        f"export HF_HOME=/b\nray job submit --runtime-env-json {env} -- python -m verl.trainer.main_ppo\n"
    )
    assert job.seen("HF_HOME") == ("/raylet", "/raylet", "/raylet", "the raylet")
    assert resolved_environment(job.parties).get("RAY_JOB_CONFIG_JSON_ENV_VAR") is None
    assert job.seen("NCCL_IB_HCA") == ("x", None, "x", "the runtime_env")
    assert job.seen("VLLM_LOGGING_LEVEL") == ("INFO", None, "INFO", "the runtime_env")
    (clash,) = resolved_environment(job.parties).clashes
    assert (clash.name, Path(clash.path).name, clash.line, Path(clash.verl_path).name) == (
        "FORCED",
        "run.sh",
        2,
        "given.py",
    )


def test_remotely_submitted_job_has_only_a_known_runtime_env(job: Job) -> None:
    """verl may leave its defaults out: the driver starts on a node that is not seen here."""
    env = '\'{"env_vars": {"NCCL_IB_HCA": "x"}}\''
    job.shell(HF_HOME="/mine").script(
        f"ray job submit --runtime-env-json {env} -- python -m verl.trainer.main_ppo\n"
    )
    assert resolved_environment(job.parties).get("HF_HOME") is None
    assert job.row("NCCL_IB_HCA").worker == Value("x")
    assert job.row("NCCL_DEBUG").driver.is_set is None
    assert job.row("NCCL_DEBUG").worker.is_set is None
    assert job.row("NCCL_DEBUG").dropped is None
    assert job.row("FORCED").worker == Value("1")


def test_runtime_env_in_the_configuration_wins(job: Job) -> None:
    given = {"ray_init": {"runtime_env": {"env_vars": {"NCCL_DEBUG": "TRACE"}}}}
    job.shell(NCCL_DEBUG="INFO").raylet(PATH="/bin").configured(ray_kwargs=given)
    assert job.seen("NCCL_DEBUG") == ("INFO", None, "TRACE", "the runtime_env")


def test_ray_expands_raylet_values_in_a_runtime_env(job: Job) -> None:
    job.raylet(PYTHONPATH="/y").script(
        """ray job submit --runtime-env-json '{"env_vars": {"PYTHONPATH": "/x:${PYTHONPATH}${NONE}"}}' -- """
        "python -m verl.trainer.main_ppo\n"
    )
    assert job.seen("PYTHONPATH")[1:] == ("/y", "/x:/y", "the runtime_env")
    assert job.row("PYTHONPATH").driver == Value("/x:/y")


def test_ray_sets_runtime_env_variables_in_alphabetical_order(job: Job) -> None:
    env = '\'{"env_vars": {"VLLM_CACHE_ROOT": "${HF_HOME}/v", "HF_HOME": "/job", "CUDA_HOME": "${HF_HOME}/c"}}\''
    job.raylet(HF_HOME="/raylet").script(
        f"ray job submit --runtime-env-json {env} -- python -m verl.trainer.main_ppo\n"
    )
    assert job.row("VLLM_CACHE_ROOT").worker == Value("/job/v")
    assert job.row("CUDA_HOME").worker == Value("/raylet/c")


def test_runtime_env_value_from_an_unseen_raylet_is_undetermined(job: Job) -> None:
    env = '\'{"env_vars": {"PYTHONPATH": "/x:${PYTHONPATH}", "HF_HOME": "/job"}}\''
    job.script(f"ray job submit --runtime-env-json {env} -- python -m verl.trainer.main_ppo\n")
    assert job.row("PYTHONPATH").worker.text is None
    assert job.row("PYTHONPATH").worker.undetermined
    assert job.row("HF_HOME").worker == Value("/job")


@pytest.mark.parametrize(
    ("address", "environ", "standing"),
    [
        (None, {}, "10.0.0.1:6379"),
        ("auto", {}, "10.0.0.1:6379"),
        ("local", {}, ""),
        (None, {"RAY_ADDRESS": "10.0.0.9:1"}, "10.0.0.9:1"),
        ("10.0.0.1:6379", {"RAY_ADDRESS": "local"}, ""),
        ("10.0.0.1:6379", {"RAY_TMPDIR": "/other"}, "10.0.0.1:6379"),
        (None, {"RAY_TMPDIR": "/other"}, ""),
    ],
)
def test_joined_cluster_follows_from_address_settings(
    address: str | None, environ: dict[str, str], standing: str, job: Job
) -> None:
    job.configured(ray_kwargs={"ray_init": {"address": address}}).raylet(PATH="/bin").shell(**environ)
    assert resolved_environment(job.parties).standing == standing


def test_ray_address_option_takes_precedence(job: Job) -> None:
    """--ray-address takes precedence over RAY_ADDRESS and over a head started by the script."""
    job.script("export RAY_ADDRESS=10.0.0.9:1\nray start --head\npython -m verl.trainer.main_ppo\n")
    job.raylet(NCCL_IB_HCA="x")
    job.parties = replace(job.parties, ray_address="10.0.0.1:6379")
    assert resolved_environment(job.parties).standing == "10.0.0.1:6379"
    assert job.row("NCCL_IB_HCA").worker == Value("x")


def test_values_of_a_remote_cluster_are_undetermined(job: Job) -> None:
    job.shell(RAY_ADDRESS="10.0.0.9:6379", NCCL_IB_HCA="x")
    row = job.row("NCCL_IB_HCA")
    assert row.worker.is_set is None
    assert "10.0.0.9:6379" in row.worker.undetermined
    assert not row.differs
    assert job.row("FORCED").worker == Value("1")


def test_several_local_raylets_each_have_a_value(job: Job) -> None:
    job.raylet(7, HF_HOME="/a", NCCL_DEBUG="INFO").raylet(8, HF_HOME="/b", NCCL_DEBUG="INFO")
    row = job.row("HF_HOME")
    assert {value.text for value in row.raylets} == {"/a", "/b"}
    assert row.differs
    assert row.worker.undetermined
    assert job.row("NCCL_DEBUG").raylet == Value("INFO")


def test_raylet_of_another_cluster_is_ignored(job: Job) -> None:
    job.raylet(7, at="10.0.0.5:1", HF_HOME="/a").raylet(8, HF_HOME="/b")
    assert job.seen("HF_HOME") == (None, "/b", "/b", "the raylet")


def test_secrets_are_compared_only_by_presence(job: Job) -> None:
    row = job.shell(HF_TOKEN="hunter2").raylet(PATH="/bin").row("HF_TOKEN")
    assert (row.driver.undetermined, row.driver.is_set, row.worker.is_set) == (WITHHELD, True, False)
    assert row.differs
    assert "hunter2" not in repr(resolved_environment(job.parties))


def test_secret_from_verl_or_a_runtime_env_is_withheld(job: Job) -> None:
    given = {
        "ray_init": {"runtime_env": {"env_vars": {"WANDB_API_KEY": "hunter2", "X_URL": "http://a:hunter2@b"}}}
    }
    job.configured(ray_kwargs=given)
    assert job.row("WANDB_API_KEY").worker.undetermined == WITHHELD
    assert "hunter2" not in repr(resolved_environment(job.parties))


def test_ray_sets_unset_variables(job: Job) -> None:
    job.ray(utils=RAY_SOURCE)
    assert job.row("OMP_NUM_THREADS").decided_by == "Ray"
    assert job.row("OMP_NUM_THREADS").worker.is_set is True
    assert job.shell(OMP_NUM_THREADS="3").seen("OMP_NUM_THREADS") == ("3", "3", "3", "the driver")


def test_allocator_preloaded_for_the_raylet_is_not_inherited(job: Job) -> None:
    job.raylet(LD_PRELOAD="/env/libjemalloc.so", RAY_LD_PRELOAD_ON_WORKERS="0")
    assert resolved_environment(job.parties).get("LD_PRELOAD") is None


def test_variables_set_later_for_other_processes(job: Job) -> None:
    row = job.shell(NCCL_CUMEM_ENABLE="1", LATER="x").row("NCCL_CUMEM_ENABLE")
    assert [(change.to, change.value.text) for change in row.later] == [("rollout servers", "1")]


@pytest.mark.parametrize("gpus", [Absent("no GPU"), GpuKinds()])
def test_gpu_dependent_variable_is_undetermined_without_local_gpus(
    gpus: GpuKinds | Unknown, job: Job
) -> None:
    job.parties = replace(job.parties, gpus=gpus)
    assert job.row("CUDA_DEVICE_MAX_CONNECTIONS").worker.is_set is None


def test_driver_without_gpus_on_a_machine_where_ray_runs(job: Job) -> None:
    job.raylet(PATH="/bin")
    job.parties = replace(job.parties, gpus=Absent("no GPU"))
    assert resolved_environment(job.parties).get("CUDA_DEVICE_MAX_CONNECTIONS") is None


def test_missing_verl_is_reported_and_the_rest_is_judged(job: Job) -> None:
    job.shell(NCCL_DEBUG="INFO").parties = replace(job.parties, trees=Absent("no verl was found"))
    found = resolved_environment(
        replace(job.parties, machine=replace(job.parties.machine, environ={"NCCL_DEBUG": "INFO"}))
    )
    assert isinstance(found, EffectiveEnvironment)
    assert found.worker("NCCL_DEBUG") == Value("INFO")
    assert "no verl was found" in found.unread[0]


def test_missing_program_is_reported(job: Job) -> None:
    job.script("python -m verl.trainer.main_mine trainer.a=1\n")
    assert "main_mine was not found" in resolved_environment(job.parties).unread[0]


def test_program_without_ray_is_not_affected_by_raylets(job: Job) -> None:
    """Supervised fine-tuning is started by torchrun; variables set in its code are attributed to verl."""
    program = job.tree.folder / "trainer" / "sft_trainer.py"
    program.write_text("import os\nos.environ['NCCL_DEBUG'] = 'WARN'\n")
    job.raylet(HF_HOME="/old").ray(utils=RAY_SOURCE).shell(HF_HOME="/new", NCCL_DEBUG="INFO")
    job.script("torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer data.x=1\n")
    assert job.seen("HF_HOME") == ("/new", "/new", "/new", "the driver")
    assert job.seen("NCCL_DEBUG") == ("INFO", "WARN", "WARN", "verl")
    found = resolved_environment(job.parties)
    assert (found.uses_ray, found.standing, found.unread) == (False, "", ())
    assert found.get("OMP_NUM_THREADS") is None


def test_program_without_a_known_path_to_ray_init_is_reported(job: Job) -> None:
    program = job.tree.folder / "trainer" / "main_other.py"
    program.write_text("import ray\n\nclass Main:\n    def run(self):\n        ray.init()\n")
    job.script("python -m verl.trainer.main_other a.b=1\n")
    assert "no way to ray.init" in resolved_environment(job.parties).unread[0]


def test_ray_assigns_gpus_to_each_worker_unless_disabled(job: Job) -> None:
    job.ray(utils="")
    folder = job.folder / "site" / "ray" / "_private" / "accelerators"
    folder.mkdir()
    folder.joinpath("nvidia_gpu.py").write_text("NO = 'RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES'\n")
    row = (
        job.shell(CUDA_VISIBLE_DEVICES="0,1")
        .raylet(7, CUDA_VISIBLE_DEVICES="2,3")
        .row("CUDA_VISIBLE_DEVICES")
    )
    assert (row.raylet.text, row.worker.is_set, row.decided_by) == ("2,3", None, "Ray")
    switch = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1"
    (job.folder / "proc" / "7" / "environ").write_text(f"CUDA_VISIBLE_DEVICES=2,3\0{switch}\0")
    assert job.seen("CUDA_VISIBLE_DEVICES") == ("0,1", "2,3", "2,3", "the raylet")


@pytest.mark.parametrize(("gpus", "sees"), [(GpuKinds(), "0,1"), (Absent("no GPU"), None)])
def test_ray_keeps_device_variables_of_other_vendors(
    gpus: GpuKinds | Unknown, sees: str | None, job: Job
) -> None:
    job.ray(utils="")
    folder = job.folder / "site" / "ray" / "_private" / "accelerators"
    folder.mkdir()
    source = (
        "NO = 'RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES'\ndef get_resource_name():\n    return \"GPU\"\n"
    )
    folder.joinpath("amd_gpu.py").write_text(source)
    job.parties = replace(job.parties, gpus=gpus)
    row = job.shell(HIP_VISIBLE_DEVICES="0,1").raylet(7, HIP_VISIBLE_DEVICES="0,1").row("HIP_VISIBLE_DEVICES")
    assert row.worker.text == sees


def test_repair_is_judged_with_a_restarted_raylet(job: Job) -> None:
    """Its future environment follows from the machine; the process itself still has the old one."""
    job.shell(NCCL_IB_HCA="mlx5").raylet(PATH="/bin")
    assert job.seen("NCCL_IB_HCA") == ("mlx5", None, None, "nobody")
    anew = replace(job.parties.machine, as_started=lambda environ: {**environ, "NCCL_IB_HCA": "mlx5"})
    job.parties = replace(job.parties, machine=anew)
    assert job.seen("NCCL_IB_HCA") == ("mlx5", "mlx5", "mlx5", "the raylet")


USUAL = {
    "PATH": "/env/bin:/usr/bin",
    "HF_HOME": "/hf",
    "NCCL_IB_HCA": "mlx5",
    "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
    "CUDA_VERSION": "13.0.2",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "SLURM_JOB_ID": "7",
}
RULES = tuple(
    check
    for check in registry.load().checks
    if check.code in {"ENV116", *(f"ENV{n}" for n in range(108, 115))}
)


def said_about(job: Job) -> list[str]:
    """Findings of the rules about the table."""
    script = job.parties.launch
    facts = (
        resolved_environment(job.parties),
        as_far_as_shown(job.parties.machine.environ),
        script if isinstance(script, Launch) else (Launch, script),
    )
    found = [run_check(rule, *facts) for rule in RULES]
    return [finding.message for result in found for finding in result.findings]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda job: job.shell(**USUAL), id="a laptop or a node where the job starts Ray"),
        pytest.param(lambda job: job.shell(**USUAL).raylet(**USUAL), id="a raylet of the same environment"),
        pytest.param(
            lambda job: job.shell(**USUAL, SLURM_STEP_ID="1", RAY_ADDRESS="auto").raylet(**USUAL),
            id="a head node with a shell of another step",
        ),
        pytest.param(
            lambda job: job.shell(**USUAL, RAY_ADDRESS="10.0.0.9:6379"), id="a container that sees no raylet"
        ),
        pytest.param(
            lambda job: job.script("export HF_HOME=/x\nray start --head\npython -m verl.trainer.main_ppo\n"),
            id="a script that exports before it starts Ray",
        ),
    ],
)
def test_correct_environment_has_no_findings(make: Callable[[Job], Job], job: Job) -> None:
    assert len(RULES) == 8
    assert said_about(make(job)) == []


def test_incorrect_environment_has_findings(job: Job) -> None:
    assert said_about(job.shell(**USUAL, NCCL_ALGO="Ring").raylet(**USUAL)) != []


def test_kinds_of_gpus() -> None:
    gpus = Gpus(
        (
            Device(0, capability="9.0"),
            Device(1, capability="9.0"),
            Device(2, trouble="GPU is lost"),
            Device(3),
        )
    )
    assert gpu_kinds.collect(gpus) == GpuKinds(("9.0",))
