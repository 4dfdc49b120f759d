"""Counting bytecode caches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.environments import interpreter, site_packages

from verl_doctor.checks.interpreter.bytecode_missing import bytecode_missing
from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.packages.bytecode import Bytecode, bytecode
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.testing import run_check


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = site_packages(tmp_path)
    for name in ("__init__.py", "a.py", "inner/b.py", "inner/data.json"):
        (site / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "torch" / name).write_text("")
    return site


def count(site: Path, **variables: str) -> Bytecode:
    found = bytecode.collect(interpreter(site), Variables(variables), Listings())
    assert isinstance(found, Bytecode)
    return found


def cache(folder: Path, module: str, tag: str = "cpython-311") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.{tag}.pyc").write_bytes(b"")


def test_sources_without_a_cache_are_missing(site: Path) -> None:
    assert (count(site).sources, count(site).missing) == (3, 3)


def test_sources_with_a_cache_are_not_missing(site: Path) -> None:
    cache(site / "torch" / "__pycache__", "a")
    cache(site / "torch" / "inner" / "__pycache__", "b")
    assert count(site).missing == 1


@pytest.mark.parametrize("tag", ["cpython-310", "cpython-311.opt-1"])
def test_cache_of_another_python_does_not_count(site: Path, tag: str) -> None:
    cache(site / "torch" / "__pycache__", "a", tag)
    assert count(site).missing == 3


def test_cache_without_a_source_does_not_count(site: Path) -> None:
    cache(site / "torch" / "__pycache__", "gone")
    assert (count(site).sources, count(site).missing) == (3, 3)


def test_caches_are_searched_where_the_prefix_points(site: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "caches"
    cache(site / "torch" / "__pycache__", "a")
    assert count(site, PYTHONPYCACHEPREFIX=str(prefix)).missing == 3
    cache(Path(f"{prefix}{site}/torch"), "a")
    assert count(site, PYTHONPYCACHEPREFIX=str(prefix)).missing == 2


def test_leftover_folder_of_a_package_is_not_counted(site: Path) -> None:
    (site / "ray").mkdir()  # the rest of an uninstallation
    assert [package.name for package in count(site).packages] == ["torch"]


def test_package_is_counted_where_it_would_be_imported(site: Path, tmp_path: Path) -> None:
    before = tmp_path / "target"
    (before / "torch").mkdir(parents=True)
    (before / "torch" / "__init__.py").write_text("")
    python = interpreter(site)
    found = bytecode.collect(
        replace(python, sys_path=(str(before), *python.sys_path)), Variables({}), Listings()
    )
    assert isinstance(found, Bytecode)
    assert [(package.folder, package.sources) for package in found.packages] == [(str(before / "torch"), 1)]
    assert found.installs == ()
    (before / "torch-2.8.0.dist-info").mkdir()
    found = bytecode.collect(
        replace(python, sys_path=(str(before), *python.sys_path)), Variables({}), Listings()
    )
    assert isinstance(found, Bytecode)
    assert found.installs == (str(before),)


@pytest.mark.parametrize("name", ["", "numpy"])
def test_environment_without_job_packages_has_no_caches(tmp_path: Path, name: str) -> None:
    site = site_packages(tmp_path)
    if name:
        (site / name).mkdir()
        (site / name / "__init__.py").touch()
    found = bytecode.collect(interpreter(site), Variables({}), Listings())
    assert isinstance(found, Absent)
    assert run_check(bytecode_missing, (Bytecode, found), Variables({})).status == "not_applicable"


def test_circular_link_ends(site: Path) -> None:
    (site / "torch" / "loop").symlink_to(site / "torch")
    assert count(site).sources == 3


def test_new_folder_is_writable_if_its_parent_is(site: Path, tmp_path: Path) -> None:
    assert count(site, PYTHONPYCACHEPREFIX=str(tmp_path / "not" / "yet")).writable
