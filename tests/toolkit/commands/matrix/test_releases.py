"""Releases in a table, and the wheel that represents a release."""

from __future__ import annotations

from dataclasses import replace

import pytest
from packaging.specifiers import SpecifierSet

from verl_doctor.checks.shared.interpreter_examples import PYTHON
from verl_doctor.toolkit.commands.matrix.releases import Release, by_default, named, newest_patches, releases
from verl_doctor.toolkit.index.page import WheelFile
from verl_doctor.toolkit.target import UsageError


def offered(*versions: str, tags: str = "py3-none-any") -> list[Release]:
    return releases("vllm", [WheelFile(f"vllm-{version}-{tags}.whl", "") for version in versions], None)


def versions(found: list[Release]) -> list[str]:
    return [str(release.version) for release in found]


MANY = offered(*(f"0.{minor}.{patch}" for minor in range(1, 34) for patch in (0, 1)), "0.34.0rc1")


def test_newest_patch_release_represents_a_minor_and_prereleases_come_last() -> None:
    found = newest_patches(
        offered("0.10.0", "0.10.2.post1", "0.10.2", "0.11.0rc1", "0.11.0rc2", "0.12.1", "0.12.2rc1")
    )
    assert versions(found) == ["0.10.2.post1", "0.11.0rc2", "0.12.1"]


@pytest.mark.parametrize(
    ("pins", "first", "last"),
    [
        (None, "0.22.1", "0.33.1"),
        (">=0.8,<=0.11.0", "0.7.1", "0.18.1"),
        ("==0.24.0", "0.22.1", "0.33.1"),
        ("<=0.8.5", "0.5.1", "0.16.1"),
        (">=7", "0.22.1", "0.33.1"),
        (">=0.1", "0.1.1", "0.12.1"),
    ],
)
def test_table_starts_at_the_pins_of_verl(pins: str | None, first: str, last: str) -> None:
    found = versions(by_default(MANY, SpecifierSet(pins) if pins else None, []))
    assert (found[0], found[-1], len(found)) == (first, last, 12)


def test_installed_release_is_always_in_the_table() -> None:
    assert "0.2.0" in versions(by_default(MANY, None, ["0.2.0"]))


def test_versions_minors_and_ranges_are_accepted() -> None:
    assert versions(named(MANY, "0.12.0, 0.3", patches=False)) == ["0.3.1", "0.12.0"]
    assert versions(named(MANY, "~=0.30", patches=False)) == ["0.30.1", "0.31.1", "0.32.1", "0.33.1"]
    assert versions(named(MANY, ">0.32.0,<0.33.1", patches=True)) == ["0.32.1", "0.33.0"]


@pytest.mark.parametrize("text", ["", "0.99", "x", "==x", ">9"])
def test_missing_file_is_reported(text: str) -> None:
    with pytest.raises(UsageError):
        named(MANY, text, patches=False)


def obstacle(tags: str, python: str = "", **here: str) -> str:
    wheel = WheelFile(f"vllm-1-{tags}.whl", "", requires_python=python)
    (release,) = releases("vllm", [wheel], replace(PYTHON, **here))
    return release.obstacle


def test_reasons_an_installer_would_reject_a_wheel() -> None:
    linux = {"version": "3.11.7", "machine": "x86_64", "glibc": "2.31"}
    assert obstacle("cp38-abi3-manylinux_2_31_x86_64", **linux) == ""
    assert obstacle("cp311-cp311-manylinux2014_x86_64", **linux) == ""
    assert obstacle("py3-none-any", **linux) == ""
    assert "glibc 2.35, this machine has 2.31" in obstacle("cp38-abi3-manylinux_2_35_x86_64", **linux)
    assert "built for aarch64" in obstacle("cp38-abi3-manylinux_2_31_aarch64", **linux)
    assert "built for cp312, not Python 3.11.7" in obstacle("cp312-cp312-manylinux_2_31_x86_64", **linux)
    assert "needs Python >=3.12" in obstacle("py3-none-any", ">=3.12", **linux)
    assert obstacle("py3-none-any", "nonsense", **linux) == ""


def test_higher_of_two_builds_of_a_version_is_read() -> None:
    (release,) = releases(
        "vllm", [WheelFile(f"vllm-1{build}-py3-none-any.whl", "") for build in ("", "-10", "-9")], None
    )
    assert release.wheel.filename == "vllm-1-10-py3-none-any.whl"


def test_wheel_for_this_machine_is_preferred() -> None:
    names = ["vllm-1-cp38-abi3-manylinux_2_31_aarch64.whl", "vllm-1-cp38-abi3-manylinux_2_31_x86_64.whl"]
    wheels = [WheelFile(name, "") for name in names]
    for machine, chosen in (("aarch64", names[0]), ("x86_64", names[1])):
        (release,) = releases("vllm", wheels, replace(PYTHON, machine=machine, glibc="2.35"))
        assert (release.wheel.filename, release.obstacle) == (chosen, "")
    (release,) = releases("vllm", wheels, replace(PYTHON, machine="riscv64", glibc="2.35"))
    assert "this machine is riscv64" in release.obstacle
