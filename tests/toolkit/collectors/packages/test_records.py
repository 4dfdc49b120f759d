"""Installed files compared with their wheels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.environments import LONG_AGO, install, look_at, site_packages
from support.kept import cannot_run

from verl_doctor.checks.packages.cache_entry_edited import cache_entry_edited
from verl_doctor.checks.packages.file_differs_from_wheel import file_differs_from_wheel
from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.collectors.installed.packages import Distribution, Packages
from verl_doctor.toolkit.collectors.packages.journal import JournalHistory
from verl_doctor.toolkit.collectors.packages.records import Drift, Records, hashed_records, records
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.testing import run_check

ENGINE = "vllm/engine.py"
SOURCE = b"wait = 1\n"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = site_packages(tmp_path / "env")
    install(site, "vllm", "0.11.0", files={"vllm/__init__.py": b"", ENGINE: SOURCE}, installer="uv")
    return site


def quick(site: Path) -> Records:
    found = records.collect(look_at(site), Marker(), Listings())
    assert isinstance(found, Records)
    return found


def edit_in_place(file: Path, content: bytes) -> None:
    """Write into an existing file, like an editor that keeps hard links."""
    with file.open("r+b") as stream:
        stream.write(content)
        stream.truncate()


def test_untouched_package_has_no_drift(site: Path) -> None:
    found = quick(site)
    assert found.drifts == ()
    assert [(p.files, p.trusted) for p in found.packages] == [(4, 4)]


def test_edit_is_found_by_size(site: Path) -> None:
    edit_in_place(site / ENGINE, b"wait = 100\n")
    os.utime(site / ENGINE, (LONG_AGO, LONG_AGO))
    assert [(d.state, d.path) for d in quick(site).drifts] == [("changed", str(site / ENGINE))]


def test_edit_of_the_same_size_is_found_by_mtime(site: Path) -> None:
    edit_in_place(site / ENGINE, b"wait = 2\n")
    assert [d.state for d in quick(site).drifts] == ["changed"]


def test_newer_file_with_the_old_content_is_not_drift(site: Path) -> None:
    (site / ENGINE).touch()
    assert quick(site).drifts == ()


def test_environment_copied_without_mtimes_is_not_drift(site: Path) -> None:
    for path in site.rglob("*"):
        if path.parent.name == "vllm":
            path.touch()
    assert quick(site).drifts == ()


def test_edit_with_restored_mtime_is_found_only_by_hashing(site: Path) -> None:
    edit_in_place(site / ENGINE, b"wait = 2\n")
    os.utime(site / ENGINE, (LONG_AGO, LONG_AGO))
    found = quick(site)
    assert found.drifts == ()
    thorough = hashed_records.collect(look_at(site), found, Marker())
    assert [drift.path for drift in thorough.drifts] == [str(site / ENGINE)]


def test_hashing_does_not_repeat_the_quick_check(site: Path) -> None:
    edit_in_place(site / ENGINE, b"wait = 2\n")
    assert hashed_records.collect(look_at(site), quick(site), Marker()).drifts == ()


def test_deleted_file_is_missing(site: Path) -> None:
    (site / ENGINE).unlink()
    assert [(d.state, d.sha256) for d in quick(site).drifts] == [("missing", "")]


def test_bytecode_and_installer_metadata_are_not_drift(site: Path) -> None:
    info = site / "vllm-0.11.0.dist-info"
    (site / "vllm" / "__pycache__").mkdir()
    (site / "vllm" / "__pycache__" / "engine.cpython-311.pyc").write_bytes(b"x")
    (info / "INSTALLER").write_text("conda\n")
    (info / "REQUESTED").touch()
    assert quick(site).drifts == ()


def test_markers_identify_who_patched(site: Path) -> None:
    (site / ENGINE).write_bytes(b"# wait = f(1)  # Uky\nwait = f(2)  # Uky\na = 2  # verl-doctor: VLLM101\n")
    assert [d.markers for d in quick(site).drifts] == [("verl-doctor: VLLM101", "Uky")]


def test_editable_install_has_no_content_to_compare(site: Path) -> None:
    (site / "vllm-0.11.0.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}}')
    (site / ENGINE).unlink()
    assert quick(site).packages == ()


def test_binary_record_is_reported_as_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "verl-1.dist-info"
    folder.mkdir()
    (folder / "RECORD").write_bytes(os.urandom(5_000))
    found = records.collect(Packages((Distribution("verl", "1", str(folder)),)), Marker(), Listings())
    assert found.drifts == ()
    assert "damaged" in found.packages[0].problem


@pytest.mark.parametrize(
    ("damage", "problem"), [(None, "missing"), (b"", "empty"), (b"\x8a\n\xff", "damaged")]
)
def test_package_without_its_record_does_not_pass(site: Path, damage: bytes | None, problem: str) -> None:
    record = site / "vllm-0.11.0.dist-info" / "RECORD"
    record.unlink()
    if damage is not None:
        record.write_bytes(damage)
    edit_in_place(site / ENGINE, b"wait = 2\n")
    found = quick(site)
    (finding,) = run_check(file_differs_from_wheel, found, JournalHistory()).findings
    assert finding.severity == "warning"
    assert f"vllm 0.11.0 cannot be compared with its wheel: its RECORD is {problem}" in finding.message
    assert "--reinstall-package vllm" in finding.remedy
    assert isinstance(hashed_records.collect(look_at(site), found, Marker()), Unknown)


def test_remaining_entries_of_a_damaged_record_are_compared(site: Path) -> None:
    record = site / "vllm-0.11.0.dist-info" / "RECORD"
    record.write_text(record.read_text() + "vllm/late.py,sha2")
    edit_in_place(site / ENGINE, b"wait = 2\n")
    messages = reported(site)["PKG102"]
    assert "is changed without a marker" in messages[0]
    assert "cannot be compared in full" in messages[1]


def test_remedy_without_record_does_not_use_force_reinstall(site: Path) -> None:
    info = site / "vllm-0.11.0.dist-info"
    (info / "INSTALLER").write_text("pip\n")
    (info / "RECORD").unlink()
    (finding,) = run_check(file_differs_from_wheel, quick(site), JournalHistory()).findings
    assert finding.remedy == "reinstall it: pip install --ignore-installed --no-deps vllm==0.11.0"


@pytest.mark.parametrize("by", ["INSTALLER", "conda-meta"])
def test_conda_metadata_replaces_a_missing_record(site: Path, by: str) -> None:
    info = site / "vllm-0.11.0.dist-info"
    (info / "RECORD").unlink()
    (info / "INSTALLER").write_text("conda\n" if by == "INSTALLER" else "")
    listing = site.parents[2] / "conda-meta" / "vllm-0.11.0-py311_0.json"
    listing.parent.mkdir()
    listing.write_text("{}")
    (finding,) = run_check(file_differs_from_wheel, quick(site), JournalHistory()).findings
    assert (finding.severity, finding.remedy) == ("info", "")


# A package installer's cache: every environment holds a second name of the same file.


def linked(site: Path, tmp_path: Path) -> Path:
    """Another environment from the same cache."""
    other = tmp_path / "other"
    shutil.copytree(site, other, copy_function=os.link)
    return other


def reported(site: Path) -> dict[str, list[str]]:
    found = quick(site)
    results = [
        run_check(cache_entry_edited, found),
        run_check(file_differs_from_wheel, found, JournalHistory()),
    ]
    return {
        result.code: [finding.message for finding in result.findings] for result in results if result.findings
    }


def test_links_without_edits_are_not_reported(site: Path, tmp_path: Path) -> None:
    assert reported(linked(site, tmp_path)) == {}


def test_in_place_edit_of_a_shared_file_is_reported_once(site: Path, tmp_path: Path) -> None:
    other = linked(site, tmp_path)
    edit_in_place(site / ENGINE, b"wait = 2\n")
    for environment in (site, other):
        by_code = reported(environment)
        assert list(by_code) == ["PKG103"]
        assert "every other environment" in by_code["PKG103"][0]


def test_replaced_file_affects_only_its_environment(site: Path, tmp_path: Path) -> None:
    other = linked(site, tmp_path)
    (site / "new").write_bytes(b"wait = 2\n")
    (site / "new").replace(site / ENGINE)
    assert list(reported(site)) == ["PKG102"]
    assert reported(other) == {}


def test_edit_older_than_the_installation_is_found(site: Path, tmp_path: Path) -> None:
    """The cache was edited yesterday, the environment made today: RECORD is newer than the edit."""
    edit_in_place(site / ENGINE, b"wait = 2\n")
    other = linked(site, tmp_path)
    record = other / "vllm-0.11.0.dist-info" / "RECORD"
    record.with_suffix(".new").write_bytes(record.read_bytes())
    record.with_suffix(".new").replace(record)
    assert list(reported(other)) == ["PKG103"]


def test_symbolic_link_into_a_cache_is_shared(site: Path, tmp_path: Path) -> None:
    cached = tmp_path / "archive-v0" / "cached.py"  # as in uv's cache, which may lie anywhere
    cached.parent.mkdir()
    cached.write_bytes(b"wait = 2\n")
    (site / ENGINE).unlink()
    (site / ENGINE).symlink_to(cached)
    (drift,) = quick(site).drifts
    assert drift.leads_to == str(cached)
    assert list(reported(site)) == ["PKG103"]


def test_drift_records_whether_the_file_is_shared() -> None:
    assert not Drift("a", "1", "/a", "changed").shared
    assert Drift("a", "1", "/a", "changed", links=2).shared


@pytest.mark.real
def test_wheel_installed_by_pip_has_no_drift_until_edited(
    wheel: Callable[[str, str], Path], tmp_path: Path
) -> None:
    site = site_packages(tmp_path)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--ignore-requires-python",
    ]
    done = subprocess.run(
        [*command, "--target", str(site), str(wheel("verl", "0.6.1"))],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        cannot_run(done.stderr[-200:])
    assert quick(site).drifts == ()
    edit_in_place(site / "verl" / "protocol.py", (site / "verl" / "protocol.py").read_bytes() + b"#\n")
    assert [d.path for d in quick(site).drifts] == [str(site / "verl" / "protocol.py")]
