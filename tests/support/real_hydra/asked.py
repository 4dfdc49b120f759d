"""Queries real Hydra in a separate environment, because of its antlr pin."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.environment import fetching
from support.kept import cannot_run, kept


def asked(requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers of `oracle.py`, one for each request. Skips, or fails in CI, without Hydra.

    They are kept, because they only depend on the requests and the release, and Hydra takes a minute for them.
    """
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    oracle = Path(__file__).with_name("oracle.py")
    python = _python()

    def make(folder: Path) -> None:
        done = subprocess.run(
            [python, str(oracle)], input=lines, capture_output=True, text=True, check=True, timeout=600
        )
        folder.mkdir(parents=True)
        (folder / "answers").write_text(done.stdout, encoding="utf-8")

    digest = hashlib.sha256(f"{python}\n{oracle.read_text('utf-8')}\n{lines}".encode()).hexdigest()
    answers = kept(f"hydra-answers/{digest}", make) / "answers"
    return [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]


def _python() -> str:
    name = f"environments/hydra-1.3-{sys.version_info.major}.{sys.version_info.minor}"
    return str(kept(name, _build) / "bin" / "python")


def _build(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    install = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "hydra-core==1.3.*"]
    done = subprocess.run(install, capture_output=True, text=True, check=False, timeout=600, env=fetching())
    if done.returncode:
        cannot_run(f"hydra-core could not be installed: {done.stderr.strip()[-200:]}")
