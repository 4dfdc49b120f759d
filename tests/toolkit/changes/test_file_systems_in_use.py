"""Repairs on file systems that are full, have a quota or share blocks between files: each mounted in namespaces of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.kept import cannot_run
from support.places import SUPPORT
from support.trying import thorough

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who mounts them"),
]
OWN = ["unshare", "--mount", "--fork", "--pid", "--mount-proc", "--kill-child"]


@pytest.mark.parametrize("kind", ["blocks", thorough("inodes"), "btrfs quota", "btrfs copy", "xfs copy"])
def test_files_are_old_or_new_and_undone_whole(kind: str) -> None:
    if subprocess.run([*OWN, "true"], capture_output=True, check=False).returncode:
        cannot_run("this user may not mount")
    done = subprocess.run(
        [*OWN, sys.executable, str(SUPPORT / "mounted_file_systems.py"), kind],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(SUPPORT.parent)},
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
