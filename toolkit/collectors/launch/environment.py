"""The environment variables that matter to a job. Anything that looks like a secret is never read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.secret import (
    list_may_hold_secret,
    may_hold_secret,
    suggests_secret,
    without_user,
)

# A name is read if it is in this set or begins with one of the prefixes.
_NAMES = frozenset(
    {
        "CC",
        "CONDA_PREFIX",
        "CPATH",
        "CPLUS_INCLUDE_PATH",
        "CXX",
        "HOSTNAME",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LIBRARY_PATH",
        "LOCAL_RANK",
        "PATH",
        "RANK",
        "TMPDIR",
        "TOKENIZERS_PARALLELISM",
        "TP_SOCKET_IFNAME",
        "VIRTUAL_ENV",
        "WORLD_SIZE",
        "XDG_CACHE_HOME",
        "all_proxy",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)
_PREFIXES = (
    "ALL_PROXY",
    "CUDA",
    "FLASHINFER_",
    "FLASH_ATTENTION_",
    "GLOO_",
    "HF_",
    "HIP_",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "HUGGINGFACE_",
    "HYDRA_",
    "INDUCTOR_",
    "KMP_",
    "MALLOC_",
    "MASTER_",
    "MKL_",
    "NCCL_",
    "NO_PROXY",
    "NUMEXPR_",
    "NVIDIA_",
    "NVTE_",
    "OMP_",
    "OPENBLAS_",
    "PYTHON",
    "PYTORCH_",
    "RAY_",
    "ROCR_",
    "SGLANG_",
    "SLURM_",
    "TORCH",
    "TRANSFORMERS_",
    "TRITON_",
    "UCX_",
    "VERL_",
    "VLLM_",
    "WANDB_",
)
_SET_BY_USERS = "_COMMENT"  # SLURM_JOB_COMMENT is free text
# Lists of paths and hosts, in which `@`, `token:` and the like are parts of names.
_LISTS = re.compile(r"no_proxy|LD_PRELOAD|(?:.*_)?PATH|PYTHONPATH|PYTHONHOME", re.IGNORECASE)
_BLANKED = "***@"
_LONGEST_VALUE = 32_768


@dataclass(frozen=True)
class Variables:
    """The relevant part of the environment that a job started from here would inherit.

    `withheld` are the names of relevant variables whose values were not read because the name or the value
    looks like a secret. Users and passwords in URLs are replaced by `***`.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()

    def get(self, name: str) -> str:
        """Return the value, "" if the variable is not set."""
        return self.values.get(name, "")

    def names(self) -> tuple[str, ...]:
        """Return all names that are set, whether or not their values were read."""
        return (*self.values, *self.withheld)


@collector(kept=True)
def variables(machine: Machine) -> Variables:
    """Read the listed variables, except those that may be secrets."""
    return as_far_as_shown(machine.environ)


def as_far_as_shown(environ: Mapping[str, str], also: Collection[str] = ()) -> Variables:
    """Return the variables of any process that may be shown: listed ones and those named in `also`."""
    wanted = sorted(name for name in environ if is_listed(name) or name in also)
    shown = {name: without_user(environ[name]) for name in wanted if not suggests_secret(name)}
    values = {name: value[:_LONGEST_VALUE] for name, value in shown.items() if is_harmless(name, value)}
    return Variables(values, tuple(name for name in wanted if name not in values))


def is_listed(name: str) -> bool:
    """Return whether a variable with this name may matter to a job, judging by the name."""
    return name in _NAMES or (name.startswith(_PREFIXES) and not name.endswith(_SET_BY_USERS))


def is_harmless(name: str, value: str) -> bool:
    """Return whether the value looks free of secrets. Masked users and passwords count as harmless."""
    if _LISTS.fullmatch(name):
        return not list_may_hold_secret(value)
    rest = value.replace(_BLANKED, "")
    return not may_hold_secret(rest) and not ("@" in rest and "proxy" in name.lower())
