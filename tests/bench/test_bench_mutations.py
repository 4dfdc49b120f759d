"""A few dozen of the edits: what the doctor calls an error Python raises too, and nearly all that it raises is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent / "bench_mutations.py"


@pytest.mark.slow
def test_reported_errors_are_true_and_breaks_are_found() -> None:
    command = [sys.executable, BENCH, "--count", "80", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 false errors\n" in done.stdout
