"""A real test that fails is tried once more and listed; a fast one is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_TESTS = Path(__file__).parent
_FILE = """\
import itertools
import pytest

TRIES = {name: itertools.count() for name in ("fixture", "test", "end", "fast")}

@pytest.fixture(scope="module")
def dear():
    assert next(TRIES["fixture"]), "no node came up"

@pytest.fixture
def end():
    yield
    assert next(TRIES["end"]), "a process is left"

@pytest.mark.real
def test_dear(dear): pass

@pytest.mark.real
def test_once(dear): assert next(TRIES["test"]), "the port was taken"

@pytest.mark.real
def test_end(end): pass

@pytest.mark.real
def test_never(): raise RuntimeError("a fault")

def test_fast(): assert next(TRIES["fast"]), "no second try"
"""


def test_test_passed_at_the_second_try_is_listed_with_its_failure(tmp_path: Path) -> None:
    (tmp_path / "test_file.py").write_text(_FILE)
    words = [sys.executable, "-m", "pytest", "-q", "-n1", "-p", "no:randomly", "-p", "no:cacheprovider"]
    words += ["-p", "conftest", "-c", str(_TESTS.parent / "pyproject.toml"), str(tmp_path / "test_file.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=600, cwd=_TESTS)
    before, _, summary = done.stdout.partition("short test summary")
    failed = [line.split()[1].rpartition("::")[2] for line in summary.splitlines() if "FAILED" in line]
    assert failed == ["test_never", "test_fast"], done.stdout + done.stderr
    _, *sections = before.split("passed at the second try: ")
    passed = {section.split()[0].rpartition("::")[2]: section for section in sections}
    assert list(passed) == ["test_dear", "test_once", "test_end"]
    assert "AssertionError: no node came up" in passed["test_dear"]
    assert "AssertionError: the port was taken" in passed["test_once"]
    assert "AssertionError: a process is left" in passed["test_end"]
