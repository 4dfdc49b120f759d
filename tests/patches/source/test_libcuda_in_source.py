"""Where no environment reaches the job, verl's own package names the folder with libcuda."""

from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest
from support.miniatures.source_trees import ROLLOUT, verl

from verl_doctor.checks.driver.triton_cannot_link import triton_cannot_link
from verl_doctor.checks.shared.libcuda import OWN, build, machine
from verl_doctor.patches.source.libcuda_in_source import libcuda_in_source
from verl_doctor.toolkit.change import NewLink, Refusal, ReplaceFile
from verl_doctor.toolkit.collectors.configuration.rollout_module import RolloutModule, rollout_module
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding
from verl_doctor.toolkit.testing import run_check

FINDING = Finding("verl can set it", Evidence("it does not"))
MODULE = '"""What starts vLLM."""\n\nfrom __future__ import annotations\n\nimport os\nfrom .spmd import Rollout  # the class\n'


def module(folder: Path, text: str) -> RolloutModule | Unknown:
    tree = verl(folder, "")
    Path(tree.folder, ROLLOUT).write_bytes(text.encode())
    return rollout_module.collect(VerlTrees(tree, ""))


def plan(folder: Path, text: str = MODULE, **environ: str) -> ReplaceFile | Refusal:
    read = module(folder, text)
    assert isinstance(read, RolloutModule)
    made = libcuda_in_source.plan(
        FINDING, machine(OWN), read, JobVariables(environ), SourceFiles(), Marker("verl-doctor")
    )
    if isinstance(made, Refusal):
        return made
    *links, edit = made
    assert {change.path.name for change in links if isinstance(change, NewLink)} == {
        "libcuda.so",
        "libcuda.so.1",
    }
    assert isinstance(edit, ReplaceFile)
    return edit


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_variable_is_set_before_anything_else_runs(tmp_path: Path, newline: str) -> None:
    edit = plan(tmp_path, MODULE.replace("\n", newline))
    assert isinstance(edit, ReplaceFile)
    folder = platformdirs.user_data_path("verl-doctor") / "libcuda/usr-local-nvidia-lib64"
    lines = edit.after.decode().split(newline)
    statement = f'os.environ.setdefault("TRITON_LIBCUDA_PATH", {str(folder)!r})'
    assert lines == [
        *MODULE.split("\n")[:5],
        "# from .spmd import Rollout  # the class  # verl-doctor: CUDA105",
        f"{statement}  # verl-doctor: CUDA105",
        "from .spmd import Rollout  # the class  # verl-doctor: CUDA105",
        "",
    ]


def test_module_that_does_not_start_with_the_import(tmp_path: Path) -> None:
    edit = plan(tmp_path, "from .spmd import Rollout\nimport os\n")
    assert isinstance(edit, ReplaceFile)
    lines = edit.after.decode().splitlines()
    assert [line.partition("  #")[0] for line in lines[1:2] + lines[3:]] == [
        "import os",
        "from .spmd import Rollout",
        "import os",
    ]


def test_variable_set_in_the_module_is_read_back_and_not_offered_again(tmp_path: Path) -> None:
    lost = build(linked="", link_error="cannot find -lcuda")
    before = module(tmp_path, MODULE)
    assert before == RolloutModule(str(tmp_path / "verl" / ROLLOUT), {})
    offered = run_check(triton_cannot_link, lost, machine(OWN), before).findings
    assert [finding.fix for finding in offered] == ["libcuda-link", "libcuda-in-source"]
    edit = plan(tmp_path)
    assert isinstance(edit, ReplaceFile)
    after = module(tmp_path, edit.after.decode())
    assert isinstance(after, RolloutModule)
    assert list(after.defaults) == ["TRITON_LIBCUDA_PATH"]
    offered = run_check(triton_cannot_link, lost, machine(OWN), after).findings
    assert [finding.fix for finding in offered] == ["libcuda-link"]


def test_variable_set_in_the_environment_is_refused(tmp_path: Path) -> None:
    assert isinstance(plan(tmp_path, TRITON_LIBCUDA_PATH="/a"), Refusal)


@pytest.mark.parametrize("text", ['"""Nothing but a docstring."""\n', "import os; import sys\n"])
def test_module_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    assert isinstance(plan(tmp_path, text), Refusal)


def test_verl_without_the_package(tmp_path: Path) -> None:
    tree = verl(tmp_path, "")
    Path(tree.folder, ROLLOUT).unlink()
    assert isinstance(rollout_module.collect(VerlTrees(tree, "")), Absent)
