"""Trees and what is to be changed in them, by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from verl_doctor.toolkit.change import Change, CompileBytecode, NewFile, NewLink, RemoveFile, ReplaceFile


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


def build_linked_environment(root: Path) -> None:
    """An environment with a link to a file of a cache, and one to a folder that others share."""
    for folder in ("cache", "env/vllm", "shared/verl"):
        (root / folder).mkdir(parents=True)
    (root / "env/pyvenv.cfg").touch()
    for name in ("cache/engine.py", "shared/verl/trainer.py"):
        (root / name).write_bytes(b"old\n")
    (root / "env/vllm/engine.py").symlink_to("../../cache/engine.py")
    (root / "env/verl").symlink_to("../shared/verl")


def plan_linked_environment(root: Path) -> Sequence[Change]:
    names = ("vllm/engine.py", "verl/trainer.py")
    return [ReplaceFile(root / "env" / name, b"old\n", b"new\n") for name in names]


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


def plan_renamed(root: Path) -> Sequence[Change]:
    """A file under another name."""
    content = (root / "engine.py").read_bytes()
    return [NewFile(root / "own_engine.py", content), RemoveFile(root / "engine.py", content)]


def plan_one_file_and_a_new_one(root: Path) -> Sequence[Change]:
    return [*plan_one_file(root), NewFile(root / "etc/env.sh", b"export A=1\n", 0o600)]


STARTING_PROGRAMS = frozenset({plan_bytecode})
"""The plans whose changes are made by a program of their own."""
