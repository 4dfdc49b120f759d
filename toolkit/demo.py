"""The whole loop on a miniature: an environment with planted faults, made in a temporary folder and thrown away."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.resources
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

# Packages that exist in the miniature as metadata only: name, version, what it requires.
_METADATA = (
    ("verl", "0.6.1", ("vllm", "ray[default]>=2.41.0", "transformers", "tensordict<=0.10.0,>=0.8.0")),
    ("vllm", "0.12.0", ("torch==2.9.0", "transformers<5,>=4.56.0", "tokenizers>=0.21.1")),
    ("torch", "2.9.0", ()),
    ("ray", "2.49.0", ()),
    ("tensordict", "0.10.0", ()),
    ("transformers", "4.57.1", ("tokenizers<=0.23.0,>=0.22.0",)),
    ("tokenizers", "0.23.2", ()),  # the planted fault: one release too new
)
_STORY = (
    (("check",), 1, "What would stop a job here?"),
    (("fix",), 1, "What would help? Nothing is changed yet."),
    (("fix", "--apply"), 0, "Repair what is safe to repair, and look again."),
    (
        ("check", "--select", "VLLM"),
        0,
        "The rules about vLLM pass now; the packages are left for you to decide.",
    ),
    (("undo",), 0, "Take it back, byte for byte."),
    (("check", "--select", "VLLM"), 1, "As it was."),
)


def run(*, keep: bool) -> int:
    """Play the story and return 0, or 1 when a step did not end as it should."""
    folder = Path(tempfile.mkdtemp(prefix="verl-doctor-demo-"))
    try:
        environment = build(folder / "environment")
        return max([_step(environment, folder, *step) for step in _STORY])
    finally:
        if keep:
            print(f"\nThe miniature is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def build(prefix: Path) -> Path:
    """Make the miniature environment in `prefix` and return it."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(prefix)
    site = next(prefix.glob("lib/python*/site-packages"))
    with importlib.resources.as_file(importlib.resources.files("verl_doctor.toolkit") / "data/demo") as data:
        shutil.copytree(
            data / "site-packages", site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name, version, requires in _METADATA:
        _install(site, name, version, requires)
    return prefix


def _install(site: Path, name: str, version: str, requires: tuple[str, ...]) -> None:
    """Write what an installer leaves: METADATA, INSTALLER and a RECORD with the hash of every file."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (info / "INSTALLER").write_text("verl-doctor demo\n", encoding="utf-8")
    owned = [*sorted((site / name).rglob("*.py")), info / "METADATA", info / "INSTALLER"]
    record = [
        f"{path.relative_to(site).as_posix()},sha256={_digest(path)},{path.stat().st_size}" for path in owned
    ]
    (info / "RECORD").write_text("\n".join([*record, f"{info.name}/RECORD,,"]) + "\n", encoding="utf-8")


def _digest(path: Path) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode("ascii")


def _step(environment: Path, folder: Path, arguments: tuple[str, ...], expected: int, why: str) -> int:
    print(f"\n=== {why}\n$ verl-doctor {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "verl_doctor.toolkit", *arguments]
    code = subprocess.run(
        command, env=dict(_environ(environment, folder)), cwd=folder, check=False
    ).returncode
    if code != expected:
        print(
            f"verl-doctor: this step should have ended with {expected} and ended with {code}", file=sys.stderr
        )
    return int(code != expected)


def _environ(environment: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """The user's variables, with a home of its own and the miniature as the active environment."""
    private: Mapping[str, str] = {
        "VIRTUAL_ENV": str(environment),
        "HOME": str(folder / "home"),
        **{name: str(folder / "home") for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")},
    }
    yield from (
        (name, value) for name, value in os.environ.items() if not name.startswith(("XDG_", "CONDA_"))
    )
    with contextlib.suppress(FileExistsError):
        (folder / "home").mkdir()
    yield from private.items()
