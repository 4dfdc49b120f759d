"""How an engine process finds Ray, by the sources of verl and vLLM, and which Ray that is for a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.miniatures.engine_sources import chooses_process, server
from support.miniatures.source_trees import SERVER, verl, vllm

from verl_doctor.checks.shared.effective import own, row, standing
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.collectors.processes.raylets import Raylet, Raylets
from verl_doctor.toolkit.collectors.ray.engine_ray import Choice, EngineRay, engine_ray
from verl_doctor.toolkit.collectors.ray.engine_reach import EngineReach, engine_reach
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment, Value
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine

SPAWNED = Choice("HOW", "spawn")
ENGINE = EngineRay(
    "server.py", 7, "WorkerDict", namespace="namespace", vllm="utils.py", vllm_unless=(SPAWNED,)
)
NO_SCRIPT = Absent("no launch script was named")
NOBODY = Absent("no raylet runs on this machine")


def read(folder: Path, text: str, process: str | None = "", **others: str) -> EngineRay | Unknown:
    trees = VerlTrees(verl(folder, text, **others), "")
    if process is None:
        return engine_ray.collect(trees, Absent("vLLM is not installed"))
    files = {"utils/system_utils.py": process or chooses_process()}
    return engine_ray.collect(trees, VllmTree(vllm(folder, files)))


def known(answer: EngineRay | Unknown) -> EngineRay:
    assert isinstance(answer, EngineRay), answer
    return answer


def test_released_server_is_read(tmp_path: Path) -> None:
    found = known(read(tmp_path, server()))
    assert found.path == str(tmp_path / "verl" / SERVER)
    assert (
        Path(found.path).read_text().splitlines()[found.line - 1].strip() == "ray.init(namespace=namespace)"
    )
    assert (found.address, found.namespace, found.prefix, found.address_given) == (
        "",
        "namespace",
        "WorkerDict",
        False,
    )
    assert found.chosen_by == (Choice("VERL_BACKEND", "ray", "zeromq"),)
    counts, names = (Path(found.path).read_text().splitlines()[line - 1].strip() for line in found.also)
    assert counts.startswith("assert len(found)")
    assert names.startswith("config.instance_id = ")
    assert found.vllm_unless == (SPAWNED,)
    assert found.vllm_after == ()


@pytest.mark.parametrize("init", ['ray.init("auto")\n', 'ray.init(address="auto")\n'])
def test_address_and_no_namespace(tmp_path: Path, init: str) -> None:
    found = known(read(tmp_path, server(init)))
    assert (found.address, found.namespace) == ("'auto'", "")


def test_server_that_passes_the_address_on(tmp_path: Path) -> None:
    passes = "        os.environ['RAY_ADDRESS'] = ray.get_runtime_context().gcs_address\n        config.instance_id ="
    assert known(read(tmp_path, server().replace("        config.instance_id =", passes))).address_given


@pytest.mark.parametrize(
    ("executor", "chosen", "unclear"),
    [
        ("RayExecutor", (), ""),
        ('RayExecutor if os.getenv("OLD", "1") == "1" else None', (Choice("OLD", "1", "1"),), ""),
        ("RayExecutor if self.old() else None", (), "self.old()"),
        ('None if os.getenv("NEW") == "1" else RayExecutor', (), "not os.getenv('NEW') == '1'"),
    ],
)
def test_condition_that_chooses_the_executor_is_read(
    tmp_path: Path, executor: str, chosen: tuple[Choice, ...], unclear: str
) -> None:
    text = server().replace('RayExecutor if backend == "ray" else None', executor)
    found = known(read(tmp_path, text))
    assert (found.chosen_by, found.unclear) == (chosen, unclear)


def test_vllm_that_passes_the_address_under_another_condition(tmp_path: Path) -> None:
    found = known(
        read(tmp_path, server(), chooses_process(unless_spawned=False, behind="cuda_is_initialized()"))
    )
    assert found.vllm_unless == ()
    assert found.vllm_after == ("cuda_is_initialized()",)


def test_vllm_that_never_passes_the_address_and_missing_vllm(tmp_path: Path) -> None:
    never = known(read(tmp_path / "a", server(), "def choose():\n    pass\n"))
    assert (never.vllm, never.vllm_unknown) == ("", "")
    none = known(read(tmp_path / "b", server(), None))
    assert (none.vllm, none.vllm_unknown) == ("", "vLLM is not installed")


def test_verl_with_another_design_is_absent(tmp_path: Path) -> None:
    looks = "import ray\ndef all_of_them():\n    return ray.util.list_named_actors()\n"
    assert isinstance(read(tmp_path, "", workers__other=looks), Absent)


def test_unparsable_server_is_unknown(tmp_path: Path) -> None:
    answer = read(tmp_path, server() + "def\n")
    assert isinstance(answer, Unknown)
    assert not isinstance(answer, Absent)
    assert "cannot be parsed" in answer.reason


# --- which Ray that is


def reach(
    environment: EffectiveEnvironment,
    engine: EngineRay = ENGINE,
    raylets: Raylets | Unknown = NOBODY,
    root: Path = Path("/nowhere"),
    launch: Launch | Unknown = NO_SCRIPT,
) -> EngineReach | Unknown:
    return engine_reach.collect(engine, environment, launch, raylets, Machine(root=root))


def spawned(name: str = "HOW", value: str = "spawn") -> EffectiveEnvironment:
    return own(row("HOW", None, None, "spawn"), row(name, None, None, value))


def test_address_passed_by_vllm() -> None:
    found = reach(standing())
    assert found == EngineReach(passed_by="utils.py", job="10.0.0.1:6379")
    assert not found.astray


def test_address_passed_by_verl() -> None:
    found = reach(spawned(), replace(ENGINE, address_given=True))
    assert isinstance(found, EngineReach)
    assert found.passed_by == "server.py"


def test_engine_without_setting_or_address_goes_astray(tmp_path: Path) -> None:
    found = reach(spawned(), root=tmp_path)
    assert isinstance(found, EngineReach)
    assert found == EngineReach(because="vLLM does not where HOW is spawn already")
    assert found.astray


def test_engine_of_a_vllm_that_never_passes_the_address_goes_astray(tmp_path: Path) -> None:
    found = reach(own(), replace(ENGINE, vllm=""), root=tmp_path)
    assert isinstance(found, EngineReach)
    assert found.because == "this vLLM never does"
    assert found.astray


@pytest.mark.parametrize(
    ("engine", "unsure"),
    [
        (replace(ENGINE, vllm_after=("cuda()", "xpu()")), "vLLM does not where cuda() or xpu() before"),
        (replace(ENGINE, vllm="", vllm_unknown="none is installed"), "it is unknown whether vLLM does: none is installed"),
    ],
)  # fmt: skip
def test_undetermined_condition_leaves_the_address_uncertain(
    tmp_path: Path, engine: EngineRay, unsure: str
) -> None:
    found = reach(own(), engine, root=tmp_path)
    assert isinstance(found, EngineReach)
    assert (found.passed_by, found.unsure, found.strays, found.astray) == (engine.vllm, unsure, True, False)
    known_here = reach(own(row("RAY_ADDRESS", None, None, "10.0.0.1:6379")), engine)
    assert isinstance(known_here, EngineReach)
    assert known_here.joins == "10.0.0.1:6379"


def test_ray_address_of_the_workers_takes_precedence() -> None:
    found = reach(spawned("RAY_ADDRESS", "10.0.0.9:6379"))
    assert isinstance(found, EngineReach)
    assert (found.joins, found.given_by) == ("10.0.0.9:6379", "RAY_ADDRESS of Ray's workers")
    assert found.astray


def test_ray_address_local_starts_a_new_ray() -> None:
    found = reach(spawned("RAY_ADDRESS", "local"))
    assert isinstance(found, EngineReach)
    assert (found.joins, found.given_by) == ("", "RAY_ADDRESS of Ray's workers")
    assert found.astray


@pytest.mark.parametrize("named", ["10.0.0.1:6379", "10.0.0.9:6379"])
def test_address_file_is_read_from_the_folder_of_the_workers(tmp_path: Path, named: str) -> None:
    (tmp_path / "scratch/ray").mkdir(parents=True)
    (tmp_path / "scratch/ray/ray_current_cluster").write_text(named)
    environment = standing(
        row("HOW", None, "spawn", "spawn"), row("RAY_TMPDIR", None, "/scratch", "/scratch")
    )
    found = reach(environment, root=tmp_path)
    assert isinstance(found, EngineReach)
    assert (found.joins, found.given_by) == (named, "/scratch/ray/ray_current_cluster")
    assert found.astray == (named == "10.0.0.9:6379")


HERE, OTHER = "10.0.0.1:6379", "10.0.0.9:6379"


@pytest.mark.parametrize(
    ("clusters", "file", "joins"),
    [
        ((HERE,), "", "auto"),
        ((HERE,), OTHER, "auto"),
        ((HERE, OTHER), "", OTHER),
        ((HERE, OTHER), OTHER, OTHER),
        ((HERE, OTHER), HERE, HERE),
    ],
)
def test_auto_joins_the_ray_that_runs_here(
    tmp_path: Path, clusters: tuple[str, ...], file: str, joins: str
) -> None:
    if file:
        (tmp_path / "tmp/ray").mkdir(parents=True)
        (tmp_path / "tmp/ray/ray_current_cluster").write_text(file)
    raylets = Raylets(tuple(Raylet(7, "10.0.0.1", cluster, "", 1.0, Variables()) for cluster in clusters))
    environment = standing(row("HOW", None, "spawn", "spawn"), at=HERE)
    found = reach(environment, replace(ENGINE, address="'auto'"), raylets, tmp_path)
    assert isinstance(found, EngineReach)
    assert found.joins == joins
    assert found.astray == (joins == OTHER)


@pytest.mark.parametrize(
    ("named", "job", "astray"),
    [
        ("127.0.0.1:6379", HERE, False),
        ("head:6379", HERE, False),
        ("head:6380", HERE, True),
        (OTHER, HERE, True),
        (OTHER, "auto", False),
    ],
)
def test_different_names_of_one_ray_are_recognised(named: str, job: str, astray: bool) -> None:
    environment = standing(row("HOW", None, "spawn", "spawn"), row("RAY_ADDRESS", None, named, named), at=job)
    found = reach(environment)
    assert isinstance(found, EngineReach)
    assert found.astray == astray


@pytest.mark.parametrize(("options", "astray"), [((), False), (("--temp-dir", "/scratch"), True)])
def test_script_that_starts_ray_writes_the_address_file(
    tmp_path: Path, options: tuple[str, ...], astray: bool
) -> None:
    words = tuple(Word(text, "run.sh", 3) for text in ("--head", *options))
    environment = replace(own(row("HOW", None, None, "spawn")), by_script=True)
    found = reach(environment, root=tmp_path, launch=Launch((), ray_starts=(words,)))
    assert isinstance(found, EngineReach)
    assert found.astray == astray


def test_undetermined_values() -> None:
    hidden = own(
        row("HOW", None, None, "spawn"), row("RAY_ADDRESS", None, None, Value(undetermined="it differs"))
    )
    for answer in (
        reach(hidden),
        reach(spawned(), replace(ENGINE, address="settings.address")),
    ):
        assert isinstance(answer, Unknown)
        assert not isinstance(answer, Absent)


@pytest.mark.parametrize(("value", "used"), [(None, False), ("zeromq", False), ("ray", True)])
def test_unused_executor_is_absent(value: str | None, used: bool) -> None:
    engine = replace(ENGINE, chosen_by=(Choice("BACKEND", "ray", "zeromq"),))
    assert isinstance(reach(own(row("BACKEND", None, None, value)), engine), Absent) != used
