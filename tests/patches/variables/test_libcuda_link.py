"""Folders with links to the driver's library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import platformdirs

from verl_doctor.checks.shared.libcuda import COMPAT, FOLDER, OWN, STUB, build, machine
from verl_doctor.patches.variables.driver_before_stub import driver_before_stub
from verl_doctor.patches.variables.libcuda_link import libcuda_link
from verl_doctor.toolkit.change import Change, NewLink, Refusal, SetVariable
from verl_doctor.toolkit.collectors.cuda.libcuda import Library
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Evidence, Finding

FINDING = Finding("Triton cannot link -lcuda", Evidence("no libcuda.so"))
SYSTEM = "/usr/lib/x86_64-linux-gnu"
IN_SYSTEM = Library(
    f"{SYSTEM}/libcuda.so.1", f"{SYSTEM}/libcuda.so.580.159.04", "580.159.04", among_others=True
)


def made(name: str) -> Path:
    return platformdirs.user_data_path("verl-doctor") / "libcuda" / name


def first(*libraries: Library) -> list[Change] | Refusal:
    """The plan that puts the driver's library first in the environment."""
    return driver_before_stub.plan(
        FINDING, machine(*libraries), Absent(""), SourceFiles(), Marker("verl-doctor")
    )


def test_folder_with_both_names_is_set_for_triton_and_the_linker() -> None:
    plan = libcuda_link.plan(FINDING, machine(OWN), build())
    assert isinstance(plan, list)
    links = [change for change in plan if isinstance(change, NewLink)]
    variables = [change for change in plan if isinstance(change, SetVariable)]
    folder, target = made("usr-local-nvidia-lib64"), Path(OWN.path)
    assert links == [NewLink(folder / "libcuda.so", target), NewLink(folder / "libcuda.so.1", target)]
    assert [
        (variable.name, variable.value, variable.prepend, variable.node_only) for variable in variables
    ] == [
        ("TRITON_LIBCUDA_PATH", str(folder), False, True),
        ("LIBRARY_PATH", str(folder), True, True),
    ]


def test_links_bypass_a_stub_and_point_to_the_driver() -> None:
    plan = libcuda_link.plan(FINDING, machine(STUB, COMPAT, OWN), build())
    assert isinstance(plan, list)
    assert {str(change.target) for change in plan if isinstance(change, NewLink)} == {OWN.path}


def test_triton_that_ignores_the_variable_gets_none() -> None:
    plan = libcuda_link.plan(
        FINDING, machine(OWN), build(reads_variable=False, link_error="cannot find -lcuda")
    )
    assert isinstance(plan, list)
    assert [change.name for change in plan if isinstance(change, SetVariable)] == ["LIBRARY_PATH"]


def test_triton_that_only_uses_ldconfig_is_refused() -> None:
    lost = build(reads_variable=False, lookup_error="AssertionError: libcuda.so cannot found!")
    plan = libcuda_link.plan(FINDING, machine(OWN), lost)
    assert isinstance(plan, Refusal)
    assert "ldconfig" in plan.reason


def test_missing_driver_is_refused() -> None:
    assert isinstance(libcuda_link.plan(FINDING, machine(STUB), build()), Refusal)
    assert isinstance(first(STUB), Refusal)


def test_driver_folder_comes_first() -> None:
    plan = first(STUB, OWN)
    assert isinstance(plan, list)
    (variable,) = plan
    assert isinstance(variable, SetVariable)
    assert (variable.name, variable.value, variable.prepend) == ("LD_LIBRARY_PATH", FOLDER, True)


def test_system_library_folder_is_not_prepended() -> None:
    """It would bring the system's libstdc++ before the environment's."""
    plan = first(STUB, IN_SYSTEM)
    assert isinstance(plan, list)
    folder = made("usr-lib-x86_64-linux-gnu")
    assert NewLink(folder / "libcuda.so.1", Path(f"{SYSTEM}/libcuda.so.1")) in plan
    assert [change.value for change in plan if isinstance(change, SetVariable)] == [str(folder)]


def test_stubs_folder_is_never_given_to_the_loader() -> None:
    for libraries in ((STUB, OWN), (STUB, replace(OWN, version="")), (STUB, COMPAT, OWN)):
        plan = first(*libraries)
        assert isinstance(plan, list)
        assert not [
            change for change in plan if isinstance(change, SetVariable) and "stubs" in str(change.value)
        ]
