"""Whether a file is the output of a program of this field, a script, or anything else.

A log without a failure is only good news if it is a log.
"""

from __future__ import annotations

import re
from typing import Literal

from verl_doctor.toolkit.logs.blame import KNOWN
from verl_doctor.toolkit.text import lines_of_output

Kind = Literal["log", "shell script", "script", "configuration file", "trace", "unknown"]
"""A trace is what `set -x` prints of a script that ended, or goes on, before it started Python."""

_PROGRAMS = (
    "cuda|nccl|gloo|nvidia|nvlink|rocm|rccl|hccl|ascend|npu|gpu|cudnn|cublas|python|pip|conda|uv|srun|sbatch"
    "|slurmd?|slurmstepd|torchrun|kubectl|kubelet|pod|docker|apptainer|singularity|enroot|pyxis|containerd"
    "|tensorboard|mlflow|swanlab|safetensors|tokenizers?|omegaconf|raylet|gcs_server|mooncake|nixl|nvcc|ninja"
    "|gcc|cmake|bash|oom-kill|kernel"
)
_OF_FIELD = re.compile(
    rb"(?i:(?<![a-z])(?:" + "|".join((*sorted(KNOWN), _PROGRAMS)).encode() + rb")(?![a-z]))"
    rb"|\b(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL|FATAL)\b|\b\w*(?:Error|Exception)\b"
    rb"|(?i:\b(?:epoch|loss|step|checkpoint|dataset|model|tokens?|weights|worker|rank|train\w*|error|fail\w*"
    rb"|exit(?:ed)?|killed)\b)|https?://|\d\d:\d\d:\d\d|\d{4}-\d\d-\d\d"
)
_TRACED = re.compile(rb"(?:\+{1,9} .*\n|[^\S\n]*\n)+")
_STARTS = re.compile(
    rb"^\++ (?:.*[ /])?(?:python[\d.]*|torchrun|ray|verl\S*|srun|sbatch|mpirun|accelerate|deepspeed|docker"
    rb"|bash|sh)\b",
    re.MULTILINE,
)
_SHELL = re.compile(rb"#!.*\b(?:ba|da|z|k)?sh\b|#SBATCH |#PBS ")
_NAMED: dict[str, Kind] = {
    **dict.fromkeys((".sh", ".bash", ".slurm", ".sbatch"), "shell script"),
    ".py": "script",
    **dict.fromkeys((".yaml", ".yml", ".toml"), "configuration file"),
}


class Recognised:
    """One file, block by block, until a line of output is found."""

    def __init__(self, name: str) -> None:
        self._named: Kind | None = next(
            (kind for ending, kind in _NAMED.items() if name.lower().endswith(ending)), None
        )
        self._has_output = False
        self._is_of_field = False
        self._is_trace: bool | None = None

    def take(self, number: int, block: bytes) -> None:
        """Read the next lines, the first of which has this number."""
        if self._is_trace is not False:
            self._is_trace = _TRACED.fullmatch(block + b"\n") is not None and not _STARTS.search(block)
        if self._has_output:
            return
        if number == 1 and self._named is None and block.startswith((b"#!", b"#SBATCH ", b"#PBS ")):
            self._named = "shell script" if _SHELL.match(block) else "script"
        self._has_output = lines_of_output(block) > 0
        self._is_of_field = self._is_of_field or _OF_FIELD.search(block) is not None

    @property
    def kind(self) -> Kind:
        """What the file is. A script that begins a log, as some schedulers print it, is part of the log."""
        if self._is_trace:
            return "trace"
        if self._has_output:
            return "log"
        return self._named or ("log" if self._is_of_field else "unknown")
