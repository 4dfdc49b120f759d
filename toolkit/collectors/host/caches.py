"""The folders in which the job's packages keep what they compile or download, and their file systems.

Each package has a variable for it and a default below the home or the temporary folder, as of 2026-11:
vllm/envs.py, torch/_inductor/runtime/cache_dir_utils.py, torch/utils/cpp_extension.py, triton/knobs.py,
flashinfer/jit/env.py, huggingface_hub/constants.py, and CUDA's programming guide for CUDA_CACHE_PATH.
"""

from __future__ import annotations

import getpass
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import FileSystem, file_system_of, may_write, nearest, space_of

_BELOW = {"FLASHINFER_WORKSPACE_BASE": "/.cache/flashinfer"}
# Where administrators mount a node's own disk. Each user needs a writable folder below it.
_LOCAL = (
    "/scratch",
    "/local_scratch",
    "/localscratch",
    "/local",
    "/raid",
    "/mnt/local",
    "/mnt/nvme",
    "/nvme",
    "/var/tmp",  # noqa: S108
    "/tmp",  # noqa: S108
)


@dataclass(frozen=True)
class CacheFolder:
    """A cache: `variable` moves it, `set_by` is the variable that did, "" for the default.

    `writable`: this user may write there, or create the folder. `kind` is the file system's type ("nfs4"), ""
    if unknown; `shared`: other machines may see the same files; `is_root`: it is on the root file system.
    `read_only` and `no_programs` (noexec) are mount options. `free` is in bytes, `files` is how many more can
    be created; None if the file system does not report it.
    """

    holds: str
    variable: str
    path: str
    set_by: str = ""
    writable: bool = True
    mounted_on: str = ""
    kind: str = ""
    shared: bool = False
    is_root: bool = False
    read_only: bool = False
    no_programs: bool = False
    free: int | None = None
    files: int | None = None

    @property
    def value(self) -> str:
        """The variable's value that puts the cache here."""
        return self.path.removesuffix(_BELOW.get(self.variable, ""))


@dataclass(frozen=True)
class Caches:
    """The caches of the installed packages.

    `local` is a private folder of this user on the node's disk with the most free space, "" if none is
    writable.
    """

    folders: tuple[CacheFolder, ...]
    local: str = ""


@collector()
def caches(
    machine: Machine, packages: Packages, variables: JobVariables, resources: Resources
) -> Caches | Unknown:
    """Determine each folder as its package does, and query the kernel about it."""
    if not resources.gpus:
        return Absent(f"nothing is compiled for GPUs here: {resources.why or 'there is none'}")
    home = variables.get("HOME") or machine.home
    if not home:
        return Unknown("this user has no home folder, so the folders of the caches are unknown")
    found = _folders(machine, packages, variables, home)
    folders = tuple(_described(machine, *folder) for folder in found)
    if not folders:
        return Absent("no package that keeps a cache is installed in this environment")
    return Caches(folders, _local(machine))


def _folders(
    machine: Machine, packages: Packages, variables: JobVariables, home: str
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the contents of a cache, its variable, its folder, and the variable that set it."""
    general = variables.get("XDG_CACHE_HOME") or f"{home}/.cache"
    temporary = variables.get("TMPDIR") or "/tmp"  # noqa: S108 - the default of tempfile
    triton = variables.get("TRITON_HOME") or home
    known = (
        ("vllm", "vLLM's compiled models", "VLLM_CACHE_ROOT", f"{general}/vllm"),
        (
            "torch",
            "torch.compile's kernels",
            "TORCHINDUCTOR_CACHE_DIR",
            f"{temporary}/torchinductor_{_user(machine)}",
        ),
        ("torch", "torch's C++ extensions", "TORCH_EXTENSIONS_DIR", f"{general}/torch_extensions"),
        ("triton", "Triton's kernels", "TRITON_CACHE_DIR", f"{triton}/.triton/cache"),
        ("flashinfer-python", "FlashInfer's kernels", "FLASHINFER_WORKSPACE_BASE", home),
        ("huggingface-hub", "models and data of Hugging Face", "HF_HOME", f"{general}/huggingface"),
    )
    for package, holds, variable, default in known:
        if packages.get(package, f"{package}-cpu") and variable not in variables.undetermined:
            value = variables.get(variable)
            path = re.sub(r"^~(?=/|$)", home, value) or default
            yield holds, variable, path + _BELOW.get(variable, ""), variable if value else ""


def _user(machine: Machine) -> str:
    names = (machine.environ.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME"))
    return next(filter(None, names), None) or getpass.getuser()


def _described(machine: Machine, holds: str, variable: str, path: str, set_by: str) -> CacheFolder:
    existing = nearest(machine, path)
    mount = file_system_of(machine, path)
    space = space_of(existing)
    return CacheFolder(
        holds=holds,
        variable=variable,
        path=path,
        set_by=set_by,
        writable=may_write(existing),
        mounted_on=mount.mounted_on if mount else "",
        kind=mount.kind if mount else "",
        shared=mount.shared if mount else False,
        is_root=mount is not None and mount.mounted_on == "/",
        read_only=mount.read_only if mount else False,
        no_programs=mount is not None and "noexec" in mount.options,
        free=space.free if space else None,
        files=space.inodes_free if space else None,
    )


def _local(machine: Machine) -> str:
    """A folder for this user on this node's disk with the most free space; "" if none is writable."""
    rooms = {}
    for path in _LOCAL:
        folder, mount = machine.at(path), file_system_of(machine, path)
        if mount is not None and _is_own_disk(mount) and may_write(folder) and (space := space_of(folder)):
            own = f"{path}/verl-caches-{_user(machine)}"
            if not _is_foreign(machine.at(own)):
                rooms[own] = space.free
    return max(rooms, key=lambda path: rooms[path], default="")


def _is_foreign(folder: Path) -> bool:
    """Return whether the folder is another user's or writable by others: files in a cache are executed."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    return (
        not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or bool(about.st_mode & stat.S_IWOTH)
    )


def _is_own_disk(mount: FileSystem) -> bool:
    """Return whether it is invisible to other machines, not in memory, and allows loading compiled code."""
    return not (mount.shared or mount.in_memory or mount.read_only or "noexec" in mount.options)
