"""Counting bytecode caches."""

from __future__ import annotations

from pathlib import Path

import pytest
from environments import interpreter, site_packages

from verl_doctor.toolkit.fact_bytecode import Bytecode, bytecode
from verl_doctor.toolkit.fact_environment import Variables


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = site_packages(tmp_path)
    for name in ("__init__.py", "a.py", "inner/b.py", "inner/data.json"):
        (site / "torch" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "torch" / name).write_text("")
    return site


def count(site: Path, **variables: str) -> Bytecode:
    found = bytecode.collect(interpreter(site), Variables(variables))
    assert isinstance(found, Bytecode)
    return found


def cache(folder: Path, module: str, tag: str = "cpython-311") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.{tag}.pyc").write_bytes(b"")


def test_sources_without_a_cache_are_missing(site: Path) -> None:
    assert (count(site).sources, count(site).missing) == (3, 3)


def test_sources_with_a_cache_are_not(site: Path) -> None:
    cache(site / "torch" / "__pycache__", "a")
    cache(site / "torch" / "inner" / "__pycache__", "b")
    assert count(site).missing == 1


@pytest.mark.parametrize("tag", ["cpython-310", "cpython-311.opt-1"])
def test_the_cache_of_another_python_does_not_count(site: Path, tag: str) -> None:
    cache(site / "torch" / "__pycache__", "a", tag)
    assert count(site).missing == 3


def test_a_cache_without_a_source_does_not_count(site: Path) -> None:
    cache(site / "torch" / "__pycache__", "gone")
    assert (count(site).sources, count(site).missing) == (3, 3)


def test_caches_are_looked_for_where_the_prefix_says(site: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "caches"
    cache(site / "torch" / "__pycache__", "a")
    assert count(site, PYTHONPYCACHEPREFIX=str(prefix)).missing == 3
    cache(Path(f"{prefix}{site}/torch"), "a")
    assert count(site, PYTHONPYCACHEPREFIX=str(prefix)).missing == 2


def test_a_package_that_is_not_installed_is_not_counted(tmp_path: Path) -> None:
    assert count(site_packages(tmp_path)).packages == ()


def test_a_folder_that_links_to_itself_ends(site: Path) -> None:
    (site / "torch" / "loop").symlink_to(site / "torch")
    assert count(site).sources == 3


def test_a_place_that_does_not_exist_yet_is_writable_where_its_parent_is(site: Path, tmp_path: Path) -> None:
    assert count(site, PYTHONPYCACHEPREFIX=str(tmp_path / "not" / "yet")).writable
