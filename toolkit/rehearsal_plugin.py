"""The private folder on PYTHONPATH through which a rehearsal reaches verl and vLLM, and the variables that lead there.

Nothing is written into an environment, and no file of verl or vLLM is changed: both have places where others may come in.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from verl_doctor.toolkit.rehearsal_verl import PLUGIN

_PACKAGE = PLUGIN.name
_TRAINING = f"{_PACKAGE}.training"
_PLATFORM = "verl_doctor_cpu"  # NAME in cpu_platform
_KV_CACHE = "1"  # GiB of vLLM's CPU build


def put_in_place(folder: Path, *, on_cpu: bool, vllm_cpu: str = "") -> Path:
    """Write what is added below `folder`, and return what has to stand on PYTHONPATH.

    `vllm_cpu` is the version of an installed distribution `vllm-cpu`: verl asks for one called `vllm`
    (verl/third_party/vllm), and vLLM takes the CPU when that one's version says so, so both find a name for what is installed.
    """
    place = folder / "plugin"
    shutil.copytree(PLUGIN, place / _PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    entry = "cpu_rollout:register" if on_cpu else "witness:watch_rollout"
    points = f"[vllm.general_plugins]\n{_PACKAGE} = {_PACKAGE}.{entry}\n"
    _distribution(place, _PACKAGE, "1", points)
    if vllm_cpu:
        _distribution(place, "vllm", f"{vllm_cpu.partition('+')[0]}+cpu", "")
    return place


def _distribution(place: Path, name: str, version: str, entry_points: str) -> None:
    folder = place / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    (folder / "entry_points.txt").write_text(entry_points, "utf-8")


def variables(place: Path, environ: Mapping[str, str], *, on_cpu: bool) -> dict[str, str | None]:
    """What the job's processes need in their environment. Lists that the user has are kept, and added to."""
    modules = [_TRAINING, f"{_PACKAGE}.cpu_platform"] if on_cpu else [_TRAINING]
    found: dict[str, str | None] = {
        "PYTHONPATH": _joined(environ, "PYTHONPATH", [str(place)], os.pathsep, first=True),
        "VERL_USE_EXTERNAL_MODULES": _joined(environ, "VERL_USE_EXTERNAL_MODULES", modules, ","),
        "VERL_DOCTOR_JOB": secrets.token_hex(4),
        "RAY_DEDUP_LOGS": "0",  # the first cause may be said by two processes
        "HYDRA_FULL_ERROR": "1",  # a whole traceback, where Hydra keeps the last words only
    }
    if "VLLM_PLUGINS" in environ:
        found["VLLM_PLUGINS"] = _joined(environ, "VLLM_PLUGINS", [_PACKAGE], ",")
    if on_cpu:
        found |= {
            "VERL_PLATFORM": _PLATFORM,
            "VERL_ENGINE_DEVICE": "cuda",  # verl registers the FSDP engine under the names of two devices; it is the same
            "VLLM_CPU_KVCACHE_SPACE": environ.get("VLLM_CPU_KVCACHE_SPACE", _KV_CACHE),
            "OMP_NUM_THREADS": "1",  # a dozen processes share the cores
        }
    return found


def _joined(
    environ: Mapping[str, str], name: str, more: list[str], separator: str, *, first: bool = False
) -> str:
    own = [environ[name]] if environ.get(name) else []
    return separator.join([*more, *own] if first else [*own, *more])
