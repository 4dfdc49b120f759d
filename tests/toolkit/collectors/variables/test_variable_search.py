"""Searching packages for readers of a variable: miniatures of vLLM, Ray and their compiled files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.variables.variable_readers import (
    Reading,
    VariableReaders,
    variable_readers,
)
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.target import Target

NO_LAUNCH = Absent("none was named")

ENVS = """
environment_variables = {
    "VLLM_USED": lambda: os.getenv("VLLM_USED"),
    "VLLM_UNUSED": lambda: os.getenv("VLLM_UNUSED"),
    "VLLM_NEW": lambda: os.getenv("VLLM_NEW", os.getenv("VLLM_OLD")),
    "VLLM_IDLE": lambda: os.getenv("VLLM_IDLE", os.getenv("VLLM_IDLE_ALIAS")),
}
ignored = {"VLLM_GONE", "VLLM_USED"}
"""
USER = """
import vllm.envs as envs
if envs.VLLM_USED and envs.VLLM_NEW:
    os.environ["VLLM_SET"] = "1"
NAMES = ["VLLM_LISTED"]
os.environ[f"VLLM_DEBUG_{kind}_LEVEL"]
"""


def site(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def interpreter(folder: Path) -> Interpreter:
    return Interpreter(
        executable="/env/bin/python",
        version="3.11.7",
        implementation="cpython",
        cache_tag="cpython-311",
        environment="venv",
        prefix="/env",
        sys_path=(str(folder),),
        site_packages=(str(folder),),
        system="Linux",
        machine="x86_64",
        glibc="2.36",
        verl="",
        vllm="",
    )


def look(
    folder: Path,
    *names: str,
    vllm: Path | None = None,
    launch: Launch | Unknown = NO_LAUNCH,
    **libraries: Path,
) -> VariableReaders:
    tree = vllm or folder / "vllm"
    found = variable_readers.collect(
        Variables(dict.fromkeys(names, "1")),
        launch,
        Target(Path("/env/bin/python"), "--python", libraries=tuple(libraries.items())),
        interpreter(folder),
        VerlTrees(Tree(str(folder / "verl"), "verl", "", "site-packages"), "")
        if (folder / "verl").is_dir()
        else Absent("no verl"),
        VllmTree(Tree(str(tree), "vllm", "0.15.1", "--vllm")) if tree.is_dir() else Absent("no vLLM"),
        Listings(),
    )
    assert isinstance(found, VariableReaders)
    return found


def reading_of(folder: Path, name: str) -> Reading:
    (reading,) = look(folder, name).variables
    return reading


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    return site(tmp_path, {"vllm/__init__.py": "", "vllm/envs.py": ENVS, "vllm/engine/core.py": USER})


@pytest.mark.parametrize("name", ["VLLM_USED", "VLLM_NEW", "VLLM_OLD"])
def test_used_entry_has_its_reader(vllm: Path, name: str) -> None:
    (reader,) = reading_of(vllm, name).readers
    assert (reader.package, Path(reader.path).name, reader.line) == ("vllm", "core.py", 3)


@pytest.mark.parametrize("name", ["VLLM_UNUSED", "VLLM_IDLE_ALIAS"])
def test_unused_entry_is_declared_and_dead(vllm: Path, name: str) -> None:
    reading = reading_of(vllm, name)
    assert reading.dead
    assert reading.declared
    assert reading.declared.path.endswith("envs.py")


@pytest.mark.parametrize("name", ["VLLM_GONE", "VLLM_NEVER", "VLLM_SET"])
def test_unread_variable_is_dead(vllm: Path, name: str) -> None:
    reading = reading_of(vllm, name)
    assert reading.dead
    assert reading.declared is None


def test_code_that_sets_a_variable_is_listed(vllm: Path) -> None:
    (setter,) = reading_of(vllm, "VLLM_SET").setters
    assert setter.line == 4


def test_variables_set_by_verl_are_listed_for_any_reader(vllm: Path) -> None:
    site(vllm, {"verl/__init__.py": "", "verl/constants.py": 'ENV = {"env_vars": {"VLLM_USED": "1"}}\n'})
    reading = reading_of(vllm, "VLLM_USED")
    assert ([reader.package for reader in reading.readers], [at.package for at in reading.setters]) == (
        ["vllm"],
        ["verl"],
    )


def test_verl_configuration_may_read_a_variable(vllm: Path) -> None:
    site(vllm, {"verl/__init__.py": "", "verl/config/a.yaml": "a: 1\nb: ${oc.env:VERL_FOLDER,null}\n"})
    (reader,) = reading_of(vllm, "VERL_FOLDER").readers
    assert (Path(reader.path).name, reader.line) == ("a.yaml", 2)
    assert reading_of(vllm, "VERL_FOLDERS").near == "VERL_FOLDER"


def test_name_in_a_list_may_be_read(vllm: Path) -> None:
    assert reading_of(vllm, "VLLM_LISTED").unclear.endswith("core.py:5 names it")


def test_composed_name_may_be_read(vllm: Path) -> None:
    assert reading_of(vllm, "VLLM_DEBUG_CACHE_LEVEL").unclear.endswith("composes such names")
    assert reading_of(vllm, "VLLM_DEBUG_CACHE").dead


def test_nearest_name_is_one_that_is_read(vllm: Path) -> None:
    assert reading_of(vllm, "VLLM_USDE").near == "VLLM_USED"
    assert reading_of(vllm, "VLLM_IDL").near == ""


def test_nothing_is_dead_without_its_owner(tmp_path: Path) -> None:
    assert reading_of(tmp_path, "VLLM_USED").unclear == "vllm was not found in this environment"
    assert reading_of(tmp_path, "NCCL_DEBUG").unclear == "no libnccl.so was found in this environment"
    assert reading_of(tmp_path, "OMP_NUM_THREADS").unclear == "any library may read OMP_ variables"


def test_environment_collectors_and_tests_are_not_readers(vllm: Path) -> None:
    site(vllm, {"vllm/collect_env.py": "os.environ.get('VLLM_GONE')", "vllm/tests/a.py": "envs.VLLM_UNUSED"})
    assert reading_of(vllm, "VLLM_GONE").dead
    assert reading_of(vllm, "VLLM_UNUSED").dead


def test_unparsable_source_leaves_the_result_open(vllm: Path) -> None:
    site(vllm, {"vllm/broken.py": "def f(:\n  envs.VLLM_GONE"})
    assert "cannot be parsed" in reading_of(vllm, "VLLM_GONE").unclear


def test_vllm_warning_is_detected(vllm: Path) -> None:
    assert not look(vllm, "VLLM_GONE").vllm_warns
    site(
        vllm,
        {"vllm/platforms.py": 'if x.startswith("VLLM_"): log("Unknown vLLM environment variable detected")'},
    )
    assert look(vllm, "VLLM_GONE").vllm_warns


RAYLET = b"\x7fELF\0RAY_worker_register_timeout_seconds\0num_prestart_python_workers\0RAY_event_stats_print\0"


@pytest.fixture
def ray(tmp_path: Path) -> Path:
    node = 'def f(name):\n    return os.environ.get("RAY_" + name)\nf("storage")\n'
    return site(
        tmp_path,
        {"ray/__init__.py": "", "ray/node.py": node, "ray/core/src/ray/raylet/raylet": RAYLET},
    )


def test_names_in_a_compiled_program_are_read(ray: Path) -> None:
    (reader,) = reading_of(ray, "RAY_worker_register_timeout_seconds").readers
    assert (reader.package, reader.line) == ("raylet", 0)


@pytest.mark.parametrize("name", ["RAY_num_prestart_python_workers", "RAY_event_stats", "RAY_worker"])
def test_part_of_a_name_is_a_different_name(ray: Path, name: str) -> None:
    assert reading_of(ray, name).dead


def test_name_composed_from_two_parts_is_undetermined(ray: Path) -> None:
    assert reading_of(ray, "RAY_storage").unclear.endswith("node.py composes such names")


def test_nearest_name_in_a_compiled_program(ray: Path) -> None:
    assert reading_of(ray, "RAY_worker_register_timeout_second").near == "RAY_worker_register_timeout_seconds"


def test_name_across_a_chunk_boundary_is_found(ray: Path) -> None:
    program = ray / "ray/core/src/ray/raylet/raylet"
    program.write_bytes(b"\0" * (8 * 1024 * 1024 - 10) + b"RAY_over_the_edge\0")
    assert reading_of(ray, "RAY_over_the_edge").readers
    assert reading_of(ray, "RAY_over_").dead


def test_named_tree_replaces_the_installed_one(ray: Path, tmp_path: Path) -> None:
    other = site(
        tmp_path / "other", {"ray/__init__.py": "os.environ['RAY_NEW']", "ray/_raylet.so": b"\0RAY_old\0"}
    )
    found = look(ray, "RAY_NEW", "RAY_old", "RAY_worker_register_timeout_seconds", ray=other / "ray")
    assert [reading.name for reading in found.dead()] == ["RAY_worker_register_timeout_seconds"]


def script(path: Path, text: str, *names: str) -> Launch:
    path.write_text(text)
    return Launch(((str(path), "shell script"),), tuple(Setting(name, "1", str(path), 1) for name in names))


def test_script_that_uses_a_variable_is_a_reader(vllm: Path, tmp_path: Path) -> None:
    launch = script(
        tmp_path / "run.sh",
        "export VLLM_PORT_OF_MINE=1\nserve --port ${VLLM_PORT_OF_MINE}\n",
        "VLLM_PORT_OF_MINE",
    )
    (reading,) = look(vllm, launch=launch).variables
    assert [str(reader) for reader in reading.readers] == [f"{tmp_path}/run.sh:2"]


def test_default_for_the_variable_itself_is_not_a_use(vllm: Path, tmp_path: Path) -> None:
    launch = script(tmp_path / "run.sh", "export VLLM_MINE=${VLLM_MINE:-1}\n# $VLLM_MINE\n", "VLLM_MINE")
    (reading,) = look(vllm, launch=launch).variables
    assert reading.dead


def test_result_is_cached_until_a_source_changes(vllm: Path) -> None:
    assert reading_of(vllm, "VLLM_GONE").dead
    site(vllm, {"vllm/late.py": "os.environ['VLLM_GONE']"})
    assert reading_of(vllm, "VLLM_GONE").readers


def test_result_is_cached_until_a_compiled_file_changes(ray: Path) -> None:
    assert reading_of(ray, "RAY_late").dead
    (ray / "ray/core/src/ray/raylet/raylet").write_bytes(RAYLET + b"RAY_late\0")
    assert reading_of(ray, "RAY_late").readers


def test_variables_of_other_families_are_not_searched(vllm: Path) -> None:
    assert look(vllm, "PATH", "CUDA_HOME").variables == ()
