"""The benchmark of rung 1 says in a sentence why it cannot time an environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.miniatures.smoke import packages

BENCH = Path(__file__).parent / "bench_smoke.py"


@pytest.mark.slow
def test_environment_failing_rung_1_is_refused(tmp_path: Path) -> None:
    site = packages(
        tmp_path / "site",
        verl__trainer__main_ppo="raise ValueError('vllm version None not supported')",
    )
    done = subprocess.run(
        [sys.executable, BENCH, sys.executable],
        env={**os.environ, "PYTHONPATH": str(site), "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"bench_smoke.py: rung 1 breaks with {sys.executable}, so there is nothing to time: import verl.trainer.main_ppo: "
        "ValueError: vllm version None not supported; name an environment in which it holds\n"
    )
