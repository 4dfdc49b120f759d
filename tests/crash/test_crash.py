"""A transaction that is killed or hits a failing disk at any of its system calls leaves everything old or new."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash import tracing, trees
from crash.alone import survives
from crash.children import NOBODY
from support.kept import cannot_run

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


def test_one_file(where: Path) -> None:
    survives(trees.build_one_file, trees.plan_one_file, where)


def test_three_files_and_a_new_one(where: Path) -> None:
    survives(trees.build_many_files, trees.plan_many_files, where)


def test_links(where: Path) -> None:
    survives(trees.build_one_file, trees.plan_links, where)


def test_renamed_file(where: Path) -> None:
    survives(trees.build_one_file, trees.plan_renamed, where)


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run unprivileged already")
def test_changed_and_new_file_without_privileges(where: Path) -> None:
    survives(trees.build_one_file, trees.plan_one_file_and_a_new_one, where, NOBODY)


def test_links_out_of_an_environment(where: Path) -> None:
    survives(trees.build_linked_environment, trees.plan_linked_environment, where)


def test_bytecode(where: Path) -> None:
    survives(trees.build_sources, trees.plan_bytecode, where)
