"""Keeps the construction from any effect outside its private folder: no network, no file elsewhere, no Ray, no log.

Three layers: the kernel's, if users may use them (Landlock forbids writing, a private network namespace has no
peers); Python's audit hooks, which also report what was refused; and variables that redirect caches to the private
folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # unshare(2)
_NO_NEW_PRIVILEGES = 38  # prctl(2)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # system calls, the same on all architectures
_PATH_BENEATH = 1
# landlock.h: writing a file, removing and making entries (bits 1, 4 to 12), from ABI 2 on moving (13), from ABI 3 truncating (14).
_WRITES = {1: 0x1FF2, 2: 0x3FF2}
_WRITES_NOW = 0x7FF2
_MOVES = frozenset({"os.rename", "os.link", "os.symlink", "shutil.move"})
_REMOVES = frozenset(
    {"os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "shutil.rmtree"}
)


class RefusedError(PermissionError):
    """An attempt to write outside the private folder."""


class NoNetworkError(OSError):
    """An attempt to use the network."""


class Isolation:
    """`refused` are the refusals since the last `taken`, as sentences, the newest last. `executed` are the files whose code was run."""

    def __init__(self, private: str) -> None:
        self.private = os.path.realpath(private)
        self.refused: list[str] = []
        self.executed: set[str] = set()
        self._allowed = (self.private, "/dev", "/proc/self")

    def begin(self) -> None:
        """Set up all layers. Those that the kernel does not support are left out."""
        with contextlib.suppress(OSError, AttributeError, ValueError):
            _own_network()
        with contextlib.suppress(OSError, AttributeError, ValueError):
            _write_below(self._allowed)
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
        own = f"/proc/{os.getpid()}"  # that of a fork is another one
        return any(real == folder or real.startswith(folder + os.sep) for folder in (*self._allowed, own))

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            writes = (isinstance(mode, str) and any(sign in mode for sign in "wax+")) or (
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            )
            if writes:
                self._demand(path)
        elif event in _REMOVES:
            self._demand(args[0])
        elif event in _MOVES:
            self._demand(args[1])
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

    def _demand_near(self, sock: Any, address: Any) -> None:
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


def _is_near(host: str) -> bool:
    return host in ("localhost", "::1", "0.0.0.0", "::") or host.startswith("127.")  # noqa: S104 - as a destination it is this machine


def caches(private: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the child: the user's home and models for reading, and all written caches in the private folder."""
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    hub = environ.get("HF_HOME") or f"{home}/.cache/huggingface"
    own = {
        name: f"{private}/{name.lower()}"
        for name in (
            "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_DATASETS_CACHE", "HF_MODULES_CACHE",
            "HF_ASSETS_CACHE", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "VLLM_RPC_BASE_PATH", "TORCHINDUCTOR_CACHE_DIR",
            "TRITON_CACHE_DIR", "TRITON_HOME", "FLASHINFER_WORKSPACE_BASE", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "CUDA_CACHE_PATH",
            "RAY_TMPDIR", "TENSORBOARD_DIR", "VERL_FILE_LOGGER_ROOT", "SWANLAB_LOG_DIR", "WANDB_DIR", "TORCH_EXTENSIONS_DIR",
        )
    }  # fmt: skip
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


def _own_network() -> None:
    """Enter a private network with a loopback and no peers. Raises OSError if the kernel does not permit it."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    # Root would lose access to other users' files in a user namespace, and does not need one.
    flags = _NEW_NETWORK if user == 0 else _NEW_NETWORK | _NEW_USER
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if flags & _NEW_USER:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as up:
        fcntl.ioctl(
            up, 0x8914, struct.pack("16sH14s", b"lo", 0x1 | 0x40, b"")
        )  # SIOCSIFFLAGS: up and running


def _write_below(folders: Iterable[str]) -> None:
    """Restrict writing by this process and its children to these folders. Raises OSError if the kernel has no Landlock."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    abi = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        raise OSError(ctypes.get_errno(), "landlock")
    writes = _WRITES.get(abi, _WRITES_NOW)
    handled = ctypes.c_uint64(writes)
    rules = libc.syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8), 0)
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
        rule = Beneath(writes, place)
        if libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(rule), 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock")
    finally:
        os.close(place)
