"""A transaction that is killed or hits a failing disk at any of its system calls leaves everything old or new."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from crash import tracing
from crash.children import NOBODY
from crash.harness import survive
from kept import cannot_run

from verl_doctor.toolkit.change import Change, CompileBytecode, NewFile, NewLink, ReplaceFile

pytestmark = pytest.mark.slow


@pytest.fixture
def where() -> Iterator[Path]:
    """A folder in memory if there is one: what is tested here is the order of calls, not the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(autouse=True)
def _traceable() -> None:
    if why := tracing.why_not():
        cannot_run(why)


def build_one_file(root: Path) -> None:
    (root / "engine.py").write_bytes(b"old = 1\r\n\xe9")


def plan_one_file(root: Path) -> Sequence[Change]:
    return [ReplaceFile(root / "engine.py", b"old = 1\r\n\xe9", b"new = 2\r\n\xe9")]


def build_many_files(root: Path) -> None:
    """Three files as they are met: linked into a cache, behind a link, executable with an attribute; stale bytecode."""
    for folder in ("cache", "vllm/__pycache__", "elsewhere"):
        (root / folder).mkdir(parents=True)
    (root / "cache/engine.py").write_bytes(b"engine\n" * 500)
    os.link(root / "cache/engine.py", root / "vllm/engine.py")
    (root / "vllm/__pycache__/engine.cpython-311.pyc").write_bytes(b"stale")
    (root / "elsewhere/worker.py").write_bytes(b"worker\n")
    (root / "vllm/worker.py").symlink_to("../elsewhere/worker.py")
    (root / "vllm/run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "vllm/run.sh").chmod(0o750)
    os.setxattr(root / "vllm/run.sh", "user.origin", b"wheel")


def plan_many_files(root: Path) -> Sequence[Change]:
    return [
        ReplaceFile(root / "vllm/engine.py", b"engine\n" * 500, b"patched engine\n" * 400),
        ReplaceFile(root / "vllm/worker.py", b"worker\n", b"patched worker\n"),
        ReplaceFile(root / "vllm/run.sh", b"#!/bin/sh\n", b""),
        NewFile(root / "etc/verl/env.sh", b"export A=1\n", 0o600),
    ]


def build_sources(root: Path) -> None:
    (root / "pkg").mkdir()
    (root / "pkg/one.py").write_bytes(b"one = 1\n")
    (root / "pkg/python2.py").write_bytes(b"print 'two'\n")


def plan_bytecode(root: Path) -> Sequence[Change]:
    return [
        ReplaceFile(root / "pkg/one.py", b"one = 1\n", b"one = 11\n"),
        CompileBytecode(Path(sys.executable), (root,)),
    ]


def plan_links(root: Path) -> Sequence[Change]:
    """Two links in folders that are not there yet, one of them relative, and the file that names one of them."""
    return [
        NewLink(root / "lib/cuda/libcuda.so", root / "engine.py"),
        NewLink(root / "lib/engine.py", Path("../engine.py")),
        *plan_one_file(root),
        NewFile(root / "lib/env.sh", b"export A=1\n"),
    ]


def test_one_file(where: Path) -> None:
    print(survive(build_one_file, plan_one_file, where))


def test_three_files_and_a_new_one(where: Path) -> None:
    print(survive(build_many_files, plan_many_files, where))


def test_links(where: Path) -> None:
    print(survive(build_one_file, plan_links, where))


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run unprivileged already")
def test_a_file_and_a_new_one_without_privileges(where: Path) -> None:
    def plan(root: Path) -> Sequence[Change]:
        return [*plan_one_file(root), NewFile(root / "etc/env.sh", b"export A=1\n", 0o600)]

    print(survive(build_one_file, plan, where, NOBODY))


def test_bytecode(where: Path) -> None:
    print(survive(build_sources, plan_bytecode, where))
