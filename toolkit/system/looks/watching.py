"""Watches what this process accesses in the file system.

Readers declare nothing, so they cannot forget anything. Python reports each opened file and each listed
folder to its audit hooks; `os.stat`, `os.lstat`, `os.readlink`, `os.access` and the entries of `os.scandir`
are wrapped, because Python does not report these.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from verl_doctor.toolkit.system.looks.looks import Looks, absolute_text, counted, counted_work
from verl_doctor.toolkit.system.looks.states import unreliable_mounts

# What a collector with a kept fact must not do, because the result is in no file.
_ELSEWHERE = (
    "subprocess.Popen",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "os.exec",
    "os.system",
    "os.spawn",
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.gethostname",
    "ctypes.dlopen",
)
_OF_NO_ACCOUNT = (None, "libstdc++.so.6")  # this process itself; the names of C++ functions
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

_here = threading.local()
_watching: Looks | None = None
_hooked = False


@contextlib.contextmanager
def watched(ignored: Iterable[str]) -> Iterator[Looks]:
    """Record the accesses of all threads of this process, except for those in these folders."""
    global _watching, _hooked  # noqa: PLW0603 - a process has one table of system calls
    temporary = [tempfile.gettempdir(), "/tmp", "/var/tmp", "/run"]  # noqa: S108 - other programs' files there come and go
    looks = Looks(ignored, [*unreliable_mounts(), *temporary, "/dev"])
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True
    put_back = _wrap(looks)
    _watching = looks
    try:
        yield looks
    finally:
        _watching = None
        put_back()


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    looks = _watching
    if looks is None:
        return
    if event == "open":
        path, _, flags = arguments
        if not isinstance(flags, int) or not flags & _WRITES:
            looks.add(path, "followed")
    elif event in ("os.listdir", "os.scandir"):
        looks.add(arguments[0], "listed")
        if event == "os.scandir" and not getattr(_here, "scans", False):
            looks.add(arguments[0], "whole")  # it bypasses the wrapper, so its entries report nothing
    elif event in ("os.getxattr", "os.listxattr"):
        looks.add(arguments[0], "followed")
    elif event in _ELSEWHERE and (not arguments or arguments[0] not in _OF_NO_ACCOUNT):
        looks.refuse(f"{threading.current_thread().name} depends on more than files ({event})")


class _Entry:
    """A folder entry that reports accesses beyond its name and its own kind."""

    __slots__ = ("_entry", "_full", "_looks", "name", "path")

    def __init__(self, entry: os.DirEntry[Any], looks: Looks, top: str | None) -> None:
        self._entry = entry
        self._looks = looks
        self._full = entry.path if top is None else f"{top}/{entry.name}"
        self.name = entry.name
        self.path = entry.path

    def __fspath__(self) -> Any:
        return self._entry.path

    def __repr__(self) -> str:
        return repr(self._entry)

    def inode(self) -> int:
        return self._entry.inode()

    def is_symlink(self) -> bool:
        return self._entry.is_symlink()

    def is_junction(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        self._follow(follow_symlinks)
        entry = self._entry
        return entry.is_dir(follow_symlinks=follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        self._follow(follow_symlinks)
        entry = self._entry
        return entry.is_file(follow_symlinks=follow_symlinks)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        self._looks.add(self._full, "followed" if follow_symlinks else "links")
        return self._entry.stat(follow_symlinks=follow_symlinks)

    def _follow(self, follow_symlinks: bool) -> None:
        """Note a followed link.

        The folder's times cover the kind of a plain entry, but not of a link's target.
        """
        if follow_symlinks and self._entry.is_symlink():
            self._looks.add(self._full, "followed")


class _Scan:
    """The entries of a folder, each reporting its accesses."""

    def __init__(self, scan: Any, looks: Looks, folder: Any) -> None:
        self._scan = scan
        self._looks = looks
        self._top = absolute_text(folder, None) if isinstance(folder, int) else None

    def __iter__(self) -> Iterator[_Entry]:
        return self

    def __next__(self) -> _Entry:
        return _Entry(next(self._scan), self._looks, self._top)

    def __enter__(self) -> _Scan:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self._scan.close()

    def close(self) -> None:
        self._scan.close()


def _wrap(looks: Looks) -> Callable[[], None]:
    """Wrap the functions that audit hooks do not report, and return a function that restores them.

    `pathlib` and `glob` of some Python versions store such functions in classes when they are imported.
    """

    def stat_(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        if not isinstance(path, int):
            looks.add(path, "followed" if follow_symlinks else "links", dir_fd)
        about: os.stat_result = originals["stat"](path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        return about

    def lstat(path: Any, *, dir_fd: int | None = None) -> os.stat_result:
        looks.add(path, "links", dir_fd)
        about: os.stat_result = originals["lstat"](path, dir_fd=dir_fd)
        return about

    def readlink(path: Any, *, dir_fd: int | None = None) -> Any:
        looks.add(path, "links", dir_fd)
        return originals["readlink"](path, dir_fd=dir_fd)

    def access(path: Any, mode: int, **options: Any) -> bool:
        answer: bool = originals["access"](path, mode, **options)
        if options:
            looks.refuse("it checks permissions in an unusual way")
        looks.add_access(path, mode, answer)
        looks.add(path, "followed")
        return answer

    def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is not None:
            looks.add(path, "followed", dir_fd)
        descriptor: int = originals["open"](path, flags, mode, dir_fd=dir_fd)
        return descriptor

    def scandir(path: Any = None) -> _Scan:
        _here.scans = True
        try:
            return _Scan(originals["scandir"](path), looks, path)
        finally:
            _here.scans = False

    def start(thread: threading.Thread) -> None:
        """Count a thread's accesses if its creator's count."""
        if work := counted_work():
            run = thread.run

            def run_counted() -> None:
                with counted(work):
                    run()

            thread.run = run_counted  # type: ignore[method-assign]
        start_thread(thread)

    def refused(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            looks.refuse(f"it depends on more than files (os.{name})")
            return originals[name](*arguments, **options)

        return call

    wrappers: dict[str, Any] = {
        "stat": stat_,
        "lstat": lstat,
        "readlink": readlink,
        "access": access,
        "open": open_,
        "scandir": scandir,
        **{name: refused(name) for name in ("statvfs", "getloadavg") if hasattr(os, name)},
    }
    originals: dict[str, Any] = {name: getattr(os, name) for name in wrappers}
    start_thread = threading.Thread.start
    places: list[tuple[Any, str, Any, Any]] = [
        (threading.Thread, "start", start_thread, start),
        *((os, name, original, wrappers[name]) for name, original in originals.items()),
    ]
    numbers = {id(original): name for name, original in originals.items()}
    for module in [
        module for name, module in sys.modules.items() if name.split(".")[0] in ("glob", "pathlib")
    ]:
        for holder in [kind for kind in vars(module).values() if isinstance(kind, type)]:
            for name, value in list(vars(holder).items()):
                held = value.__func__ if isinstance(value, staticmethod) else value
                if (known := numbers.get(id(held))) is not None:
                    places.append((holder, name, value, staticmethod(wrappers[known])))
    able = (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks)
    for supported in able:
        supported.update({wrappers[name] for name, original in originals.items() if original in supported})
    for holder, name, _, wrapper in places:
        setattr(holder, name, wrapper)

    def put_back() -> None:
        for holder, name, original, _ in places:
            setattr(holder, name, original)
        for supported in able:
            supported.difference_update(wrappers.values())

    return put_back
