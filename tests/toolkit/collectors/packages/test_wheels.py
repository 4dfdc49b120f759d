"""Python and CUDA versions for which packages were compiled."""

from __future__ import annotations

import os
from pathlib import Path

from support.environments import install, look_at, site_packages

from verl_doctor.toolkit.collectors.packages.wheels import Wheel, wheels


def read(site: Path) -> tuple[Wheel, ...]:
    return wheels.collect(look_at(site)).wheels  # type: ignore[no-any-return]


def test_pure_python_package_is_ignored(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    install(site, "verl", "0.6.1")
    assert read(site) == ()


def test_python_version_is_read_from_module_names(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    files = {"ray/_raylet.cpython-310-x86_64-linux-gnu.so": b"", "ray/_raylet.abi3.so": b""}
    install(site, "ray", "2.49.0", files=files, tag="cp310-cp310-manylinux2014_x86_64")
    (wheel,) = read(site)
    assert (wheel.tags, wheel.built_for) == (("cp310-cp310-manylinux2014_x86_64",), ("cpython-310",))


def test_stable_abi_modules_fit_every_python(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    install(site, "vllm", "0.31.0", files={"vllm/_C.abi3.so": b""}, tag="cp312-cp312-linux_x86_64")
    assert [wheel.built_for for wheel in read(site)] == [()]


def test_package_without_a_wheel_file_is_skipped(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    (install(site, "verl", "0.6.1") / "WHEEL").unlink()
    assert read(site) == ()


def test_record_that_is_a_pipe_does_not_block(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    folder = install(site, "ray", "2.49.0", tag="cp310-cp310-manylinux2014_x86_64")
    (folder / "RECORD").unlink()
    os.mkfifo(folder / "RECORD")
    assert [wheel.built_for for wheel in read(site)] == [()]
