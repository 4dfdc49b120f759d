"""Keeps the construction from any effect outside its private folder.

No network, no file elsewhere, no signal, no Ray, no log.

Three layers: the kernel's, if users may use them (`namespaces`; Landlock forbids writing and signals);
Python's audit hooks, which also report what was refused; and variables that redirect caches to the private
folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.probes.construction.namespaces import BEFORE, TERMINALS, drop_capabilities, enter

_NO_NEW_PRIVILEGES = 38  # prctl(2)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, the same on all architectures
_PATH_BENEATH = 1
# landlock.h: writing a file, removing and making entries (bits 1, 4 to 12), from ABI 2 on moving (13), from
# ABI 3 truncating (14).
_WRITES = {1: 0x1FF2, 2: 0x3FF2}
_WRITES_NOW = 0x7FF2
_OF_FILES = 0x4002  # those of these that concern a file
_SIGNALS_AND_SOCKETS, _SCOPES_SINCE = (
    0x3,
    6,
)  # neither signals nor abstract sockets beyond this process and its children
_FOLDERS_OF_DEVICES = ("/dev/shm", "/dev/mqueue")  # noqa: S108
# Devices without effect on the machine: those of Python's own functions, and accelerators. Others may be
# disks, consoles, switches.
_DEVICES = re.compile(
    r"/dev/(?:null|zero|full|random|urandom|tty|ptmx|nvidia[\w-]*|nvidia-caps/.+|kfd|dri/.+|accel/.+"
    r"|davinci\w*|devmm_svm|hisi_hdc)"
)
_access = os.access  # the real one
_MOVES = frozenset({"os.rename", "os.link", "os.symlink", "shutil.move"})
_REMOVES = frozenset(
    {
        "os.mkdir",
        "os.remove",
        "os.rmdir",
        "os.truncate",
        "os.chmod",
        "os.chown",
        "os.utime",
        "os.setxattr",
        "os.removexattr",
        "shutil.rmtree",
    }
)


class RefusedError(PermissionError):
    """An attempt to write outside the private folder."""


class NoNetworkError(OSError):
    """An attempt to use the network."""


class Isolation:
    """`refused` are the refusals since the last `taken`, as sentences, the newest last.

    `executed` are the files whose code was run.
    """

    def __init__(self, private: str) -> None:
        self.private = os.path.realpath(private)
        self.refused: list[str] = []
        self.executed: set[str] = set()
        self._allowed = [self.private, *_devices(), "/proc/self"]
        self._mounts: dict[str, bool] = {}

    def begin(self) -> None:
        """Set up all layers.

        Those that the kernel does not support are left out. It may continue in a child process.
        """
        terminals = _file_system(TERMINALS)
        with contextlib.suppress(OSError, AttributeError, ValueError):
            self._mounts = enter(self.private)
            os.access = self._access
        if _file_system(TERMINALS) != terminals:  # they are private
            self._allowed.append(TERMINALS)
        with contextlib.suppress(OSError, AttributeError, ValueError):
            _write_below(self._allowed)
        with contextlib.suppress(OSError, AttributeError, ValueError):
            drop_capabilities()
        sys.addaudithook(self._audit)

    def taken(self) -> list[str]:
        """Return the refusals, and start over."""
        refused, self.refused = self.refused, []
        return refused

    def is_ours(self, path: Any) -> bool:
        """Return whether a path may be written."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return True
        real = os.path.realpath(os.fsdecode(path))
        if _is_below(real, f"{self.private}/{BEFORE}"):
            return False
        own = f"/proc/{os.getpid()}"  # that of a fork is another one
        return any(_is_below(real, folder) for folder in (*self._allowed, own))

    def _access(self, path: Any, mode: int, **more: Any) -> bool:
        """Do what os.access does, as if nothing had been made read-only.

        Code that checks access first would fail in its own way.
        """
        if _access(path, mode, **more):
            return True
        return (
            bool(mode & os.W_OK)
            and _access(path, mode & ~os.W_OK, **more)
            and self._was_writable(path, **more)
        )

    def _was_writable(self, path: Any, **more: Any) -> bool:
        if isinstance(path, int) or more.get("dir_fd") is not None:
            return False
        real = os.path.realpath(os.fsdecode(path))
        mount = max((folder for folder in self._mounts if _is_below(real, folder)), key=len, default="/")
        if self._mounts.get(mount):
            return False
        found = os.stat(real)  # noqa: PTH116
        user = os.geteuid()
        if user == found.st_uid or user == 0:  # noqa: PLR1714
            return user == 0 or bool(found.st_mode & stat.S_IWUSR)
        groups = {os.getegid(), *os.getgroups()}
        return bool(found.st_mode & (stat.S_IWGRP if found.st_gid in groups else stat.S_IWOTH))

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = (isinstance(mode, str) and any(sign in mode for sign in "wax+")) or (
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            )
            if writes:
                self._demand(path)
        elif event in _REMOVES:
            self._demand(args[0] if not isinstance(args[0], int) else f"/proc/self/fd/{args[0]}")
        elif event in _MOVES:
            self._demand(args[1])
        elif event in ("os.kill", "os.killpg"):
            self._demand_own(args[0], args[1])
        elif event == "exec":
            self.executed.add(getattr(args[0], "co_filename", ""))
        elif event == "socket.connect":
            self._demand_near(*args)
        elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
            self._demand_name(args[0])

    def _demand(self, path: Any) -> None:
        if not self.is_ours(path):
            self.refused.append(f"it writes {os.fsdecode(path)}")
            raise RefusedError(errno.EACCES, "verl-doctor forbids writing here", os.fsdecode(path))

    def _demand_own(self, pid: int, number: int) -> None:
        """Permit signals to this process, its group and its children."""
        if number == 0 or pid == 0 or abs(pid) in (os.getpid(), os.getpgrp()) or _is_descendant(abs(pid)):
            return
        self.refused.append(f"it sends a signal to process {pid}")
        raise RefusedError(errno.EPERM, "verl-doctor forbids signals to other processes")

    def _demand_near(self, sock: Any, address: Any) -> None:
        if isinstance(address, (str, bytes)):
            path = os.fsdecode(address)
            if path and not path.startswith("\0") and not self.is_ours(path):
                self.refused.append(f"it connects to {path}")
                raise NoNetworkError(errno.ENETUNREACH, "verl-doctor forbids connections to other processes")
            return
        datagram = getattr(sock, "type", 0) & 0xF == socket.SOCK_DGRAM  # connecting sends nothing
        if datagram or not isinstance(address, tuple) or _is_near(str(address[0])):
            return
        self.refused.append(f"it connects to {address[0]}:{address[1]}")
        raise NoNetworkError(errno.ENETUNREACH, "verl-doctor has no network here")

    def _demand_name(self, host: Any) -> None:
        name = os.fsdecode(host) if isinstance(host, (str, bytes)) else ""
        if not name or _is_near(name) or name == socket.gethostname():
            return
        with contextlib.suppress(OSError):
            socket.inet_pton(socket.AF_INET6 if ":" in name else socket.AF_INET, name)
            return
        self.refused.append(f"it looks up {name}")
        raise socket.gaierror(socket.EAI_AGAIN, "verl-doctor has no network here")


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_descendant(pid: int) -> bool:
    """Return whether a process descends from this one."""
    own = os.getpid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
            if pid == own:
                return True
    return False


def _devices() -> Iterator[str]:
    """Yield what may be written in /dev."""
    yield from filter(os.path.isdir, _FOLDERS_OF_DEVICES)
    for folder, _, names in os.walk("/dev"):
        for path in (f"{folder}/{name}" for name in names):
            with contextlib.suppress(OSError):
                if _DEVICES.fullmatch(path) and stat.S_ISCHR(os.lstat(path).st_mode):
                    yield path


def _file_system(folder: str) -> int | None:
    """Return the number of the file system of a folder; None if there is no such folder."""
    try:
        return os.stat(folder).st_dev  # noqa: PTH116
    except OSError:
        return None


def _is_near(host: str) -> bool:
    return host in ("localhost", "::1", "0.0.0.0", "::") or host.startswith("127.")  # noqa: S104 - as a destination it is this machine


def caches(private: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the child, for what it reads and for its caches.

    The user's home and models are for reading, and all written caches are in the private folder.
    """
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    hub = environ.get("HF_HOME") or f"{home}/.cache/huggingface"
    own = {
        name: f"{private}/{name.lower()}"
        for name in (
            "TMPDIR",
            "XDG_CACHE_HOME",
            "XDG_CONFIG_HOME",
            "XDG_DATA_HOME",
            "HF_DATASETS_CACHE",
            "HF_MODULES_CACHE",
            "HF_ASSETS_CACHE",
            "VLLM_CACHE_ROOT",
            "VLLM_CONFIG_ROOT",
            "VLLM_RPC_BASE_PATH",
            "TORCHINDUCTOR_CACHE_DIR",
            "TRITON_CACHE_DIR",
            "TRITON_HOME",
            "FLASHINFER_WORKSPACE_BASE",
            "NUMBA_CACHE_DIR",
            "MPLCONFIGDIR",
            "CUDA_CACHE_PATH",
            "RAY_TMPDIR",
            "TENSORBOARD_DIR",
            "VERL_FILE_LOGGER_ROOT",
            "SWANLAB_LOG_DIR",
            "WANDB_DIR",
            "TORCH_EXTENSIONS_DIR",
        )
    }
    for folder in own.values():
        Path(folder).mkdir(parents=True, exist_ok=True)
    return {
        **own,
        "HOME": _home(private, home),
        "HF_HOME": hub,
        "HF_HUB_CACHE": environ.get("HF_HUB_CACHE") or f"{hub}/hub",
        "HF_TOKEN_PATH": environ.get("HF_TOKEN_PATH") or f"{hub}/token",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_AUTO_CONNECT": "0",
        "WANDB_MODE": "disabled",
        "TOKENIZERS_PARALLELISM": "false",
        "HYDRA_FULL_ERROR": "1",
    }


def _home(private: str, home: str) -> str:
    """Create a home in the private folder through which everything in the user's home can be read.

    A library that creates its own folder there, as CuPy does on import, creates it in the private one.
    """
    folder = home_in(private)
    Path(folder).mkdir(exist_ok=True)
    with contextlib.suppress(OSError):
        for name in os.listdir(home):  # noqa: PTH208 - names are enough
            Path(folder, name).symlink_to(os.path.join(home, name))  # noqa: PTH118
    return folder


def home_in(private: str) -> str:
    """Return the path of the private home."""
    return f"{private}/home"


def no_ray() -> None:
    """Make every start or join of Ray fail."""
    import ray

    def init(*_: Any, **__: Any) -> None:
        raise NoNetworkError(errno.ENETUNREACH, "verl-doctor starts no Ray here")

    ray.init = init


def _write_below(folders: Iterable[str]) -> None:
    """Restrict this process and its children to writing here, and to signals to each other.

    They may write to these folders and devices.

    Raises OSError if the kernel has no Landlock.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    abi = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        raise OSError(ctypes.get_errno(), "landlock")
    writes = _WRITES.get(abi, _WRITES_NOW)
    scopes = _SIGNALS_AND_SOCKETS if abi >= _SCOPES_SINCE else 0
    handled = struct.pack("<3Q", writes, 0, scopes)[: 24 if scopes else 8]
    rules = libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), "landlock")
    try:
        for folder in folders:
            _allow(libc, rules, folder, writes)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if libc.syscall(_RESTRICT_SELF, rules, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock")
    finally:
        os.close(rules)


def _allow(libc: Any, rules: int, folder: str, writes: int) -> None:
    class Beneath(ctypes.Structure):
        _pack_ = 1
        _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))

    place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        is_folder = stat.S_ISDIR(os.fstat(place).st_mode)
        rule = Beneath(writes if is_folder else writes & _OF_FILES, place)
        if libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(rule), 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock")
    finally:
        os.close(place)
