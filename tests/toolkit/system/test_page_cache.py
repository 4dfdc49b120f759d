"""Residency in the page cache: both query methods agree, and if one is wrong the other is used."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.places import ROOT
from support.trying import unless_disturbed

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.system import page_cache
from verl_doctor.toolkit.system.page_cache import Residency, residency

SIZE = 8 * 1024 * 1024
WHOLE = SIZE + mmap.PAGESIZE  # a file that ends in the middle of a page

# Run below a mounted file system: prints the residency of a file before and after reading a part.
ASK = """
import json, os, sys
from verl_doctor.toolkit.system.page_cache import Residency, residency
if len(sys.argv) > 2:
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
file = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
before = residency(file)
os.pread(file, 1048576, 0)
said = [before, residency(file)]
print(json.dumps([[found.size, found.looked_at, found.cached] if isinstance(found, Residency) else found.reason for found in said]))
"""


@pytest.fixture
def weights(disk: Path) -> Path:
    return cold(disk / "weights", SIZE + 100)


def cold(path: Path, size: int = SIZE) -> Path:
    """A file without written data, so that nothing is cached: reads are cached as usual."""
    path.write_bytes(b"")
    os.truncate(path, size)
    return path


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """A file that is read without reading ahead."""
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        yield file
    finally:
        os.close(file)


def by_mincore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel before 6.5."""
    monkeypatch.setattr(page_cache, "_CACHESTAT", 100_000)


@unless_disturbed
def test_both_methods_report_the_pages_that_were_read(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(weights) as file:
        os.pread(file, 3 * mmap.PAGESIZE, 1024 * 1024)
        by_default = residency(file)
        by_mincore(monkeypatch)
        assert residency(file) == by_default == Residency(WHOLE, WHOLE, 3 * mmap.PAGESIZE)


def test_querying_reads_nothing(weights: Path) -> None:
    with opened(weights) as file:
        for _ in range(3):
            assert residency(file) == Residency(WHOLE, WHOLE, 0)


@unless_disturbed
def test_fully_read_file_is_resident(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.read_bytes()
    with opened(weights) as file:
        by_default = residency(file)
        by_mincore(monkeypatch)
        assert residency(file) == by_default == Residency(WHOLE, WHOLE, WHOLE)


@pytest.mark.parametrize("old_kernel", [False, True])
@unless_disturbed
def test_range_can_be_queried(weights: Path, old_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if old_kernel:
        by_mincore(monkeypatch)
    quarter = SIZE // 4
    with opened(weights) as file:
        os.pread(file, quarter, 0)
        assert residency(file, 0, quarter).share == 1.0  # type: ignore[union-attr]
        assert residency(file, quarter, quarter) == Residency(quarter, quarter, 0)
        assert residency(file, quarter).size == WHOLE - quarter  # type: ignore[union-attr]
        assert residency(file, 0, 10 * SIZE).size == WHOLE  # type: ignore[union-attr]


@unless_disturbed
def test_sampled_windows_represent_the_file(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_mincore(monkeypatch)
    monkeypatch.setattr(page_cache, "_WINDOW", 16 * mmap.PAGESIZE)
    with opened(weights) as file:
        os.pread(file, SIZE // 2, 0)
        found = residency(file, most=SIZE // 4)
    assert isinstance(found, Residency)
    assert found.size == WHOLE
    assert found.looked_at <= SIZE // 4 + 16 * mmap.PAGESIZE
    assert 0.4 < found.share < 0.6


def test_empty_file_is_resident(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with opened(tmp_path / "empty") as file:
        assert residency(file) == Residency(0, 0, 0)
        assert Residency(0, 0, 0).share == 1.0


def test_only_files_can_be_queried() -> None:
    reader, writer = os.pipe()
    os.close(writer)
    assert residency(reader) == Residency(0, 0, 0)
    os.close(reader)
    with pytest.raises(OSError, match="Bad file descriptor"):
        residency(reader)


def output_of(command: list[str], *words: str) -> list[list[int] | str]:
    """Output of ASK run by a command."""
    done = subprocess.run(
        [*command, sys.executable, "-c", ASK, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".dev")},
    )
    if done.returncode and "permitted" in done.stderr:
        pytest.skip("this needs a user who may mount")
    assert done.returncode == 0, done.stderr
    answers: list[list[int] | str] = json.loads(done.stdout)
    return answers


@unless_disturbed
def test_file_below_an_overlay_is_queried_at_its_pages(disk: Path) -> None:
    for name in ("lower", "upper", "work", "merged"):
        (disk / name).mkdir(exist_ok=True)
    cold(disk / "lower" / "weights")
    options = "lowerdir=lower,upperdir=upper,workdir=work"
    mount = f'cd {disk} && mount -t overlay overlay -o {options} merged && exec "$@"'
    before, after = output_of(["unshare", "-m", "sh", "-c", mount, "sh"], str(disk / "merged" / "weights"))
    assert before == [SIZE, SIZE, 0]
    assert after == [SIZE, SIZE, 1024 * 1024]


@unless_disturbed
def test_missing_permissions_give_no_false_result() -> None:
    """Before Linux 5.2, mincore needed no permission."""
    if os.geteuid() != 0:
        pytest.skip("only root has files that others do not own")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = cold(Path(folder, "weights"))
        for answer in output_of([], str(path), "65534"):
            assert isinstance(answer, str) or answer[2] in {0, 1024 * 1024}


def test_hidden_residency_is_unknown(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_mincore(monkeypatch)
    monkeypatch.setattr(page_cache, "_resident", lambda _address, length: length)
    with opened(weights) as file:
        answer = residency(file)
    assert isinstance(answer, Unknown)
    assert "its owner" in answer.reason
