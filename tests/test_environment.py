"""Tests are isolated from the variables and shared memory of their user."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest
from support import environment, isolation
from support.folders import Folders
from support.running import ran

SET_BY_TESTS = {"RAY_TMPDIR"}
SET_BY_PYTHON = {"LC_CTYPE"}
HOSTILE = {
    "COLUMNS": "37",
    "LC_ALL": "C",
    "LD_LIBRARY_PATH": "/nowhere",
    "OPENBLAS_L2_SIZE": "1",
    "PYTHONPATH": "/nowhere",
    "RAY_ADDRESS": "127.0.0.1:1",
    "VERL_DOCTOR_HOSTS": "a",
    "VERL_DOCTOR_TEST_CACHE": "/c",
    "VLLM_USE_V1": "1",
    "https_proxy": "http://127.0.0.1:9",
}


def test_only_listed_variables_are_set() -> None:
    assert [name for name in os.environ if not environment.is_kept(name)] == sorted(SET_BY_TESTS)


def test_child_inherits_only_listed_variables(tmp_path: Path) -> None:
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    done = ran([sys.executable, "-c", program], tmp_path, {"GIVEN": "1"})
    inherited = set(json.loads(done.stdout))
    unlisted = {name for name in inherited if not environment.is_kept(name)}
    assert unlisted - SET_BY_PYTHON == {"GIVEN", *SET_BY_TESTS}


def test_variables_of_a_shell_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"CI": "true", "PATH": "/bin", "PIP_INDEX_URL": "https://index"}
    environ = {**HOSTILE, **kept}
    environment.clean(environ)
    monkeypatch.setenv("PYTEST_PUT_ASIDE", environ.pop("PYTEST_PUT_ASIDE"))
    assert environ == {**kept, "LANG": "C.UTF-8"}
    assert environment.fetching()["https_proxy"] == HOSTILE["https_proxy"]
    assert environment.setting("VERL_DOCTOR_TEST_CACHE", "") == "/c"


def test_shared_memory_of_the_tests_is_private() -> None:
    if not isolation.is_isolated():
        pytest.skip("this needs a user who may mount")
    assert os.access("/dev/shm", os.W_OK)


def test_folder_of_a_failed_test_is_kept_even_with_a_socket(tmp_path: Path) -> None:
    """The socket cannot be copied from memory to the disk, and the reason of the failure must not be lost for that."""
    memory = Path("/dev/shm") / f"verl-doctor-test-{os.getpid()}"
    memory.mkdir()
    try:
        kept = Folders(tmp_path, memory, tmp_path)
        kept._top, kept.name, kept.failed = memory, "test_x", True
        folder = kept.new()
        (folder / "log").write_text("x")
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(folder / "s"))
            kept.end(folder)
        assert (tmp_path / "test_x-0" / "log").read_text() == "x"
        assert not folder.exists()
    finally:
        shutil.rmtree(memory)
