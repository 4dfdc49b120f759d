"""Shared by the rules about the effective environment: workers' variables, value origins, examples."""

from __future__ import annotations

import re
from typing import Any

from verl_doctor.checks.shared.variables import places
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Decider,
    Effective,
    EffectiveEnvironment,
    RayletHere,
    Value,
)
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableRead, VariableReaders
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.rule import Location
from verl_doctor.toolkit.text import without_middle

# Variables that are read where the models run. RAY_, SLURM_ and HYDRA_ are for the process that starts the
# job or the raylet.
_FOR_WORKERS = re.compile(
    r"(?:CUBLAS|CUDA|CUDNN|FLASHINFER|FLASH_ATTENTION|GLOO|HF|HUGGINGFACE|INDUCTOR|KMP|MALLOC|MKL|NCCL"
    r"|NUMEXPR|NVTE|OMP|OPENBLAS|PYTORCH|SGLANG|TOKENIZERS|TORCH|TORCHINDUCTOR|TRANSFORMERS|TRITON|UCX"
    r"|VERL|VLLM|WANDB)_\w+|(?:all|http|https|no)_proxy|(?:ALL|HTTP|HTTPS|NO)_PROXY|LD_LIBRARY_PATH"
    r"|LD_PRELOAD|LIBRARY_PATH|PYTHONPATH|PYTHONHASHSEED|TP_SOCKET_IFNAME|XDG_CACHE_HOME|CC|CXX"
)
_LABEL = re.compile(r"\w+_VERSION")  # labels of an image
PER_NODE = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "GLOO_SOCKET_IFNAME",
        "NCCL_IB_HCA",
        "NCCL_SOCKET_IFNAME",
        "TP_SOCKET_IFNAME",
        "UCX_NET_DEVICES",
        "VLLM_HOST_IP",
    }
)
"""Variables whose correct value may differ from node to node."""

_LONGEST = 60
SCRIPT = "/home/me/run_grpo.sh"
CONSTANTS = "/env/verl/trainer/constants_ppo.py"


def is_for_workers(name: str) -> bool:
    """Whether the processes that train and generate read the variable."""
    return _FOR_WORKERS.fullmatch(name) is not None and _LABEL.fullmatch(name) is None


def value_text(value: Value) -> str:
    """A value as text for a sentence."""
    if value.undetermined:
        return (
            f"a value that is not shown ({value.undetermined})"
            if value.present
            else f"unknown ({value.undetermined})"
        )
    if value.text is None:
        return "not set"
    return without_middle(value.text, _LONGEST) or "empty"


def raylet_names(environment: EffectiveEnvironment) -> str:
    """The parent raylets of the workers: "the raylet (pid 7)"."""
    numbers = ", ".join(str(raylet.pid) for raylet in environment.raylets)
    several = len(environment.raylets) > 1
    return f"the raylet{'s' * several} (pid {numbers})" if numbers else "the raylet"


def read_from(environment: EffectiveEnvironment) -> str:
    """The files from which the environment of the raylets was read."""
    return ", ".join(f"/proc/{raylet.pid}/environ" for raylet in environment.raylets)


def set_at(name: str, variables: Variables, launch: Launch | Unknown) -> tuple[Location | None, str]:
    """Where the driver gets a variable from: the line of a launch file, and its description."""
    for place in places(name, variables, launch):
        return place.location, str(place.location) if place.location else place.where
    return None, "this shell"


def decided_at(row: Effective) -> Location | None:
    """Where the workers' value is written."""
    return Location(row.path, row.line or None) if row.path else None


def dead(readers: VariableReaders | Unknown) -> frozenset[str]:
    """The variables that nothing reads, which other rules report."""
    return (
        frozenset() if isinstance(readers, Unknown) else frozenset(reading.name for reading in readers.dead())
    )


def lost_on_the_way(environment: EffectiveEnvironment) -> list[Effective]:
    """The variables for workers that the driver has and they certainly lack, unless verl has a default."""
    return [
        variable
        for variable in environment.rows
        if is_for_workers(variable.name)
        and variable.driver.is_set is True
        and variable.worker.is_set is False
        and variable.dropped is None
    ]


def row(
    name: str,
    driver: str | None,
    raylet: str | None,
    worker: str | Value | None,
    by: Decider = "the raylet",
    **more: Any,
) -> Effective:
    """A row of an example."""
    seen = worker if isinstance(worker, Value) else Value(worker)
    return Effective(
        name=name, driver=Value(driver), raylets=(Value(raylet),), workers=(seen,), decided_by=by, **more
    )


def standing(*rows: Effective, at: str = "10.0.0.1:6379") -> EffectiveEnvironment:
    """Facts of an example: a job that joins a cluster with a raylet on this machine."""
    return EffectiveEnvironment(
        rows=rows, raylets=(RayletHere(pid=77, address="10.0.0.7"),), standing=at, verl=CONSTANTS
    )


def own(*rows: Effective) -> EffectiveEnvironment:
    """Facts of an example: a job that starts its own Ray."""
    return EffectiveEnvironment(rows, verl=CONSTANTS)


def script(*names: str) -> tuple[Any, ...]:
    """Facts of an example: a launch script that exports these variables, one per line, which torch reads."""
    settings = tuple(
        Setting(name=name, value="1", path=SCRIPT, line=line) for line, name in enumerate(names, 3)
    )
    readers = tuple(
        Reading(
            name=name, owner="torch", readers=(VariableRead(package="torch", path="/env/torch/x.py", line=1),)
        )
        for name in names
    )
    launch = Launch(files=((SCRIPT, "shell script"),), settings=settings)
    return Variables(), launch, VariableReaders(readers)


def shell(*names: str) -> tuple[Any, ...]:
    """Facts of an example: variables of the shell, and no launch script."""
    readers = tuple(
        Reading(
            name=name, owner="torch", readers=(VariableRead(package="torch", path="/env/torch/x.py", line=1),)
        )
        for name in names
    )
    return (
        Variables(dict.fromkeys(names, "1")),
        (Launch, Absent("no launch script was named")),
        VariableReaders(readers),
    )
