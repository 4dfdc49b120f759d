"""The whole loop on a miniature: an environment with planted faults.

It is created in a temporary folder and removed afterwards.
"""

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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from verl_doctor.toolkit.console.streams import NO_READER
from verl_doctor.toolkit.system import toml

_STORY = (
    (("check",), 1, "What would stop a job here?"),
    (("fix",), 1, "What would fix it? Nothing is changed yet."),
    (("fix", "--apply"), 1, "Apply the safe repairs and check again."),
    (
        ("check", "--select", "VLLM"),
        0,
        "The rules about vLLM pass now; the packages are your decision.",
    ),
    (("undo",), 0, "Undo it, byte for byte."),
    (("check", "--select", "VLLM"), 1, "Everything is as before."),
)


def run(*, keep: bool) -> int:
    """Run all steps and return 0, or 1 if a step did not end as expected."""
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
    data = importlib.resources.files("verl_doctor.toolkit") / "data/miniature.toml"
    for package in toml.loads(data.read_text("utf-8"))["package"]:
        _install(site, **package)
    return prefix


def _install(
    site: Path, name: str, version: str, requires: Sequence[str], files: Mapping[str, str] | None = None
) -> None:
    """Write what an installer leaves: files, METADATA, INSTALLER and a RECORD with every file's hash."""
    info = f"{name}-{version}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {requirement}" for requirement in requires),
    ]
    written = {
        **(files or {}),
        f"{info}/METADATA": "\n".join([*metadata, ""]),
        f"{info}/INSTALLER": "verl-doctor demo\n",
    }
    record = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in written.items()]
    written[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    for path, text in written.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")


def _digest(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    return "sha256=" + digest.rstrip(b"=").decode("ascii")


def _step(environment: Path, folder: Path, arguments: tuple[str, ...], expected: int, why: str) -> int:
    print(f"\n=== {why}\n$ verl-doctor {' '.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "verl_doctor.toolkit", *arguments]
    code = subprocess.run(
        command, env=dict(_environ(environment, folder)), cwd=folder, check=False
    ).returncode
    if code == NO_READER:
        raise BrokenPipeError
    if code != expected:
        print(
            f"verl-doctor: this step should have exited with {expected}, but exited with {code}",
            file=sys.stderr,
        )
    return int(code != expected)


def _environ(environment: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the user's variables, with a separate home and the miniature as the active environment."""
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
