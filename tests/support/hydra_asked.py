"""Asking real Hydra, in an environment of its own: its antlr pin is nobody else's business."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.environment import fetching
from support.kept import cannot_run, kept


def asked(requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of `toolkit/hydra_oracle.py`, one for each request. Skips, or fails in CI, without Hydra."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    oracle = str(Path(__file__).with_name("hydra_oracle.py"))
    said = subprocess.run(
        [_python(), oracle], input=lines, capture_output=True, text=True, check=True, timeout=600
    )
    return [json.loads(line) for line in said.stdout.splitlines()]


def _python() -> str:
    name = f"environments/hydra-1.3-{sys.version_info.major}.{sys.version_info.minor}"
    return str(kept(name, _build) / "bin" / "python")


def _build(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    install = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "hydra-core==1.3.*"]
    done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=600, env=fetching())
    if done.returncode:
        cannot_run(f"hydra-core could not be installed: {done.stderr.strip()[-200:]}")
