"""Records what this process accesses in the file system, and checks whether all of it is unchanged.

Readers declare nothing, so they cannot forget anything. Python reports each opened file and each listed
folder to its audit hooks; `os.stat`, `os.lstat`, `os.readlink`, `os.access` and the entries of `os.scandir`
are wrapped, because Python does not report these. What is compared later:

- of a file, its size, both times, inode, device and mode: a user cannot set back the change time (ctime);
- of a listed folder, also its times, which change with each entry added, removed or renamed;
- of a folder that was only found, its inode, device, owner and mode;
- of a link that was read, the same as of a file, and of a missing path, the error;
- of a permission check, its result.

Only file systems that keep such times count (`_TICKS`), and no file that changed shortly before it was read:
another change might fall into the same clock tick.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.file_systems import FileSystem, file_system_of, file_systems

_LOCAL = 2.0  # seconds; kernel and process use the same clock
_REMOTE = 900.0  # seconds; a server's clock may differ from ours
_TICKS = {
    **dict.fromkeys(
        ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "overlay", "rootfs"), _LOCAL
    ),
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs", "squashfs", "erofs", "iso9660"), _LOCAL),
    **dict.fromkeys(("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "virtiofs", "9p"), _REMOTE),
}
"""The file systems with reliable times, and the minimum age of a change there."""

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

Row = list[Any]
"""A folder, the names in it and their digests, and its listing's digest.

They are the names that were followed and a digest of them, then those not followed and a digest.
"""


class CannotBeKeptError(Exception):
    """Something was accessed that cannot be compared later. The message is one sentence."""


class Looks:
    """Everything that was accessed.

    `unkept` are the tasks that accessed processes, which cannot be compared. `ignored` are the folders that
    do not count; a file in one of `passing` counts only for `counted`.
    """

    def __init__(self, ignored: Iterable[str], passing: Iterable[str]) -> None:
        self._ignored = tuple(f"{folder.rstrip('/')}/" for folder in ignored)
        self._passing = tuple(f"{folder.rstrip('/')}/" for folder in passing)
        self._followed: set[str] = set()
        self._links: set[str] = set()
        self._listed: set[str] = set()
        self._whole: set[str] = set()
        self._access: dict[tuple[str, int], bool] = {}
        self.why_not = ""
        self.unkept: set[str] = set()

    def add(self, path: Any, kind: str, folder: int | None = None) -> None:
        """Note an access: `followed`, `links`, `listed`, or `whole` (all entries of a folder inspected)."""
        if (name := self._name(path, folder)) is not None:
            getattr(self, f"_{kind}").add(name)

    def add_access(self, path: Any, mode: int, answer: bool) -> None:
        """Note the result of a permission check."""
        if (name := self._name(path, None)) is not None:
            self._access[name, mode] = answer

    def refuse(self, why: str) -> None:
        """Note that a kept fact depends on something other than files."""
        if _counts():
            self.why_not = self.why_not or why

    def _name(self, path: Any, folder: int | None) -> str | None:
        """Return the full path; None where an access does not count."""
        name = _text(path, folder)
        if name is None or f"{name}/".startswith(self._ignored):
            return None
        if (work := _counts()) and name.startswith("/proc/"):
            self.unkept.add(work)
            return None
        return None if not work and f"{name}/".startswith(self._passing) else name

    def record(self, began: float) -> dict[str, Any]:
        """Return all accesses as JSON, with the current state.

        Raises CannotBeKeptError if a later change might not show.

        `began` is the time of the first access: what changed after it, or shortly before, may differ from
        what was read. Collectors that exceeded their time may still add accesses, so what is iterated over is
        copied.
        """
        if self.why_not:
            raise CannotBeKeptError(self.why_not)
        for folder in tuple(self._whole):
            names = [f"{folder}/{name}" for name in _names(folder)]
            self._followed.update(names)
            self._links.update(names)
        settled = _Settled(began)
        rows = [_row(*entry, settled.check) for entry in self._by_folder()]
        return {
            "rows": rows,
            "access": [[*question, answer] for question, answer in self._access.copy().items()],
        }

    def _by_folder(self) -> list[tuple[str, str, str, bool]]:
        """Return each folder with the names followed, those not followed, and whether it was listed."""
        listed = frozenset(self._listed)
        found: dict[str, tuple[list[str], list[str]]] = {folder: ([], []) for folder in listed}
        for number, paths in enumerate((tuple(self._followed), tuple(self._links))):
            for path in paths:
                folder, _, name = path.rpartition("/")
                found.setdefault(folder or "/", ([], []))[number].append(name or ".")
        return [
            (folder, "/".join(sorted(followed)), "/".join(sorted(links)), folder in listed)
            for folder, (followed, links) in found.items()
        ]


def what_changed(record: Any) -> str:
    """Return the first changed path of a record, "" when none has.

    Raises LookupError or TypeError for an invalid record.
    """
    for row in record["rows"]:
        folder, followed, _, links, _, listed = row
        if _row(folder, followed, links, listed is not None) != row:
            return str(folder)
    for path, mode, answer in record["access"]:
        if os.access(path, mode) is not answer:
            return str(path)
    return ""


_Check = Callable[[str, os.stat_result, bool], None]


def _row(folder: str, followed: str, links: str, listed: bool, check: _Check | None = None) -> Row:
    """Return the state of a folder.

    Entries are accessed relative to it: resolving the whole path takes 50% longer.
    """
    try:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        problem = getattr(error, "errno", None) or -1
        return [folder, followed, problem, links, problem, problem if listed else None]
    try:
        of_listing = None
        if listed:
            about = os.fstat(descriptor)
            of_listing = hash(
                (about.st_ino, about.st_dev, about.st_mode, about.st_mtime_ns, about.st_ctime_ns)
            )
            if check is not None:
                check(folder, about, True)
        digests = [
            _digest(folder, names, descriptor, follow, check)
            for names, follow in ((followed, True), (links, False))
        ]
        return [folder, followed, digests[0], links, digests[1], of_listing]
    finally:
        os.close(descriptor)


def _digest(folder: str, names: str, descriptor: int, follow: bool, check: _Check | None) -> int:
    states: list[Any] = []
    for name in names.split("/") if names else ():
        try:
            about = _STAT(name, dir_fd=descriptor, follow_symlinks=follow)
        except (OSError, ValueError) as error:
            states.append(getattr(error, "errno", None) or -1)
            continue
        mode = about.st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            states.append(
                (mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino, about.st_dev)
            )
        else:
            states.append((mode, about.st_ino, about.st_dev, about.st_uid, about.st_gid, about.st_rdev))
        if check is not None:
            check(f"{folder}/{name}", about, stat.S_ISREG(mode) or stat.S_ISLNK(mode))
    return hash(tuple(states))  # hash of numbers only, which is the same in every process


class _Settled:
    """Checks that files changed long enough before they were read, on file systems with reliable times."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._machine = Machine()
        self._mounts = list(file_systems(self._machine))
        self._latest: dict[int, int] = {}

    def check(self, path: str, about: os.stat_result, has_times: bool) -> None:
        """Raise CannotBeKeptError if a file changed too recently."""
        latest = self._latest.get(about.st_dev)
        if latest is None:
            system = file_system_of(self._machine, path, self._mounts)
            if system is None or system.kind not in _TICKS:
                raise CannotBeKeptError(
                    f"{path} lies on {system.kind if system else 'an unknown file system'}"
                )
            latest = self._latest[about.st_dev] = int((self._began - _TICKS[system.kind]) * 1e9)
        if has_times and max(about.st_mtime_ns, about.st_ctime_ns) > latest:
            raise CannotBeKeptError(f"{path} changed a moment ago")


def unreliable_mounts() -> list[str]:
    """Return where file systems without reliable times are mounted, such as the kernel's own."""
    mounts: Iterable[FileSystem] = file_systems(Machine())
    return [mount.mounted_on for mount in mounts if mount.kind not in _TICKS]


# Watching

_STAT = os.stat
_READLINK = os.readlink
_GETCWD = os.getcwd
_here = threading.local()
_watching: Looks | None = None
_hooked = False


@contextlib.contextmanager
def counted(work: str) -> Iterator[None]:
    """Count all accesses of this thread in this block, wherever they are: a kept fact depends on them.

    `work` names the fact.
    """
    _here.work = work
    try:
        yield
    finally:
        _here.work = ""


def _counts() -> str:
    """Return the kept fact that this thread collects, "" for none."""
    return getattr(_here, "work", "")


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


def _text(path: Any, folder: int | None) -> str | None:
    """Return a path as absolute text; None for anything that cannot name a file."""
    try:
        if path is None:
            return _GETCWD()
        if isinstance(path, int):
            name = _READLINK(f"/proc/self/fd/{path}")
            return name if name.startswith("/") else None
        name = os.fsdecode(path)
        if not name.startswith("/"):
            top = _GETCWD() if folder is None else _READLINK(f"/proc/self/fd/{folder}")
            name = f"{top.rstrip('/')}/{name}" if name not in ("", ".") else top
    except (OSError, TypeError, ValueError):
        return None
    while len(name) > 1 and name.endswith("/"):
        name = name[:-1]
    return name


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone
    except OSError:
        return []


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
        self._top = _text(folder, None) if isinstance(folder, int) else None

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
        if work := _counts():
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
