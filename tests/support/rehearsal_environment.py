"""An environment in which torch, vLLM and verl really run without a GPU, built once for all tests."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from support.environment import fetching
from support.kept import cannot_run, kept

_CONSTRAINTS = Path(__file__).parents[2] / "toolkit" / "data" / "rehearsal_constraints.txt"
PINS = tuple(line for line in _CONSTRAINTS.read_text("utf-8").splitlines() if "==" in line)
"""What the documentation has users install, with the extra `rehearsal`."""

# The first three are of the CUDA build on the public index and break beside a CPU build of torch; triton is 1 GB of no use here.
_LEFT_OUT = ("torchvision", "torchaudio", "torchcodec", "triton")

# verl asks for the version of a distribution "vllm", and vLLM takes itself for a CPU build by the word "cpu" in it.
_ALIAS = ("vllm", "0.31.0+cpu")

_PICTURES = ("torchvision==0.28.0", "qwen-vl-utils==0.0.14", "av==18.1.0")

_LIMIT = 1200.0  # seconds of one command


def python() -> Path:
    """Return the interpreter of the environment. Shared: run it, never change it. Skips, or fails in CI, without it."""
    name = f"environments/rehearsal-{sys.version_info.major}.{sys.version_info.minor}"
    return kept(name, _build) / "bin" / "python"


def pictures() -> Path:
    """A folder for PYTHONPATH with packages that vision models need: the environment has no torchvision."""
    name = f"environments/rehearsal-pictures-{sys.version_info.major}.{sys.version_info.minor}"
    return kept(name, _add_pictures)


def variables() -> dict[str, str]:
    """Variables for every process of this environment: no network, few threads, little memory for vLLM."""
    return {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_NO_USAGE_STATS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _build(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="uv-", dir=folder.parent) as private:
        overrides = Path(private, "overrides.txt")
        overrides.write_text("".join(f'{name}; sys_platform == "never"\n' for name in _LEFT_OUT))
        environ = {"UV_CACHE_DIR": private, **fetching()}
        install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(folder)]
        install += ["--override", str(overrides), "--compile-bytecode"]
        try:
            _run([sys.executable, "-m", "venv", str(folder)], environ)
            _run([*install, *_as_pip_is_told(folder), *PINS], environ)
        except subprocess.CalledProcessError as error:
            cannot_run(f"an environment with {', '.join(PINS)} could not be made: {error.stderr[-500:]}")
        except subprocess.TimeoutExpired:
            cannot_run(f"an environment with {', '.join(PINS)} was not ready after {_LIMIT / 60:.0f} minutes")
    name, version = _ALIAS
    site = next((folder / "lib").glob("python*/site-packages"))
    alias = site / f"{name}-{version}.dist-info"
    alias.mkdir()
    (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (alias / "INSTALLER").write_text("verl-doctor's tests\n")
    (alias / "RECORD").write_text("")


def _add_pictures(folder: Path) -> None:
    pip = [
        str(python().parent / "pip"),
        "install",
        "-q",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--target",
        str(folder),
    ]
    try:
        _run([*pip, *_PICTURES], fetching())
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        cannot_run(f"{', '.join(_PICTURES)} could not be installed: {error}")
    # Describes operators that only the build for CUDA has, and ends the import where they are not loaded.
    (folder / "torchvision" / "_meta_registrations.py").write_text("")


def _run(command: list[str], environ: dict[str, str]) -> str:
    """Output of the command."""
    done = subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=_LIMIT)
    return done.stdout


def _as_pip_is_told(folder: Path) -> list[str]:
    """uv's options for the indexes and wheels that pip is configured with: uv does not read pip's configuration.

    A CPU build of torch is where pip finds it.
    """
    lines = _run([str(folder / "bin" / "pip"), "config", "list"], dict(os.environ)).splitlines()
    told = dict(line.split("=", 1) for line in lines)
    words = ["--index-strategy", "unsafe-best-match"]  # pip's own: the best of all indexes
    for name in ("index-url", "extra-index-url", "find-links"):
        scopes = (told.get(f"{scope}.{name}") for scope in (":env:", "install", "global"))
        value = next((value for value in scopes if value), "''")
        words += [word for place in ast.literal_eval(value).split() for word in (f"--{name}", place)]
    return words
