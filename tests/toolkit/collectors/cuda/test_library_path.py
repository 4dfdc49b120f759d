"""Stub libraries on the loader's path."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule
from verl_doctor.toolkit.collectors.cuda.library_path import LibraryPath, StubFolder, library_path
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.launch.launch_collector import launch
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

STUBS = "/usr/local/cuda/lib64/stubs"


def look(value: str, read: Launch | Unknown = Absent("")) -> tuple[StubFolder, ...]:  # noqa: B008
    found = library_path.collect(Variables({"LD_LIBRARY_PATH": value}), read, Absent(""))
    assert isinstance(found, LibraryPath)
    return found.stubs


def script(path: Path, text: str) -> Launch:
    path.write_text(text)
    found = launch.collect(Target(Path("/p"), "--python", files=(path,)), Machine(environ={}))
    assert isinstance(found, Launch)
    return found


def test_stub_folder_in_the_shell_is_found() -> None:
    assert look(f"/a:{STUBS}:/b") == (StubFolder(STUBS),)
    assert look("/a/stubs-of-mine:/b/stubs.d:/c") == ()


def test_stub_folder_with_a_loadable_name_is_marked(tmp_path: Path) -> None:
    folder = tmp_path / "stubs"
    folder.mkdir()
    assert look(str(folder)) == (StubFolder(str(folder)),)
    (folder / "libcuda.so.1").touch()
    assert look(str(folder)) == (StubFolder(str(folder), loadable=True),)


def test_script_that_extends_an_unknown_value_is_read(tmp_path: Path) -> None:
    read = script(tmp_path / "run.sh", f'export LD_LIBRARY_PATH="{STUBS}:$LD_LIBRARY_PATH"\npython a.py\n')
    assert look("", read) == (StubFolder(STUBS, str(tmp_path / "run.sh"), 1),)
    assert look(STUBS, read) == (StubFolder(STUBS, str(tmp_path / "run.sh"), 1),)


def test_script_that_sets_another_variable_is_ignored(tmp_path: Path) -> None:
    assert look("", script(tmp_path / "run.sh", f"export LIBRARY_PATH={STUBS}\npython a.py\n")) == ()


OLD_REMEDY = """
import os
stubs = "/usr/local/cuda/lib64/stubs"
if stubs not in os.environ.get("LD_LIBRARY_PATH", ""):
    os.environ["LD_LIBRARY_PATH"] = f"{stubs}:" + os.environ.get("LD_LIBRARY_PATH", "")
from vllm import LLM
"""


def set_in(folder: Path, text: str) -> tuple[StubFolder, ...]:
    (folder / "vllm_rollout_spmd.py").write_text(text)
    module = RolloutModule(str(folder / "__init__.py"))
    found = library_path.collect(Variables({}), Absent(""), module)
    assert isinstance(found, LibraryPath)
    return found.stubs


def test_verl_module_that_sets_the_path_is_named(tmp_path: Path) -> None:
    assert set_in(tmp_path, OLD_REMEDY) == (StubFolder(STUBS, str(tmp_path / "vllm_rollout_spmd.py"), 5),)


def test_module_that_only_reads_the_path_is_ignored(tmp_path: Path) -> None:
    assert set_in(tmp_path, OLD_REMEDY.replace('os.environ["LD_LIBRARY_PATH"] =', "other =")) == ()
    assert set_in(tmp_path, OLD_REMEDY.replace('os.environ["LD', 'os.environ["')) == ()
    assert set_in(tmp_path, "LD_LIBRARY_PATH = stubs = ((") == ()
