"""Copies of environments, with file clones or hard links if the disk supports them.

The paths in their files are rewritten.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

OWN = ".verl-doctor"
"""The journal's folder, which is not copied: it describes the environment that contains it."""

_CLONE = 0x40049409  # FICLONE of ioctl_ficlonerange(2)
_NEVER = {errno.EXDEV, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS, errno.EINVAL}
_NOT_THIS_FILE = {errno.EMLINK, errno.EPERM, errno.EACCES, errno.ETXTBSY}
_LARGEST_TEXT = 1_000_000  # bytes
_LONGEST_FIRST_LINE = 127  # the maximum length of a script's first line that the kernel reads


def copied(environment: Path, copy: Path) -> None:
    """Fill the folder `copy` with an independent copy of an environment. Raises OSError."""
    names = _names_of(environment, copy)
    rewritten: dict[str, bytes] = {}
    put = _Copier()
    for source, inside in walked(environment):
        target = copy / inside
        if source.is_symlink():
            _link(source, target, environment, copy)
        elif os.path.isdir(source):
            target.mkdir(exist_ok=True)
        elif os.path.isfile(source):
            content = _renamed(source, inside, names)
            if content is None:
                put(source, target)
            else:
                _write(target, content, source)
                rewritten[str(target)] = content
    if rewritten:
        _recorded(copy, rewritten)
    _folders_like(environment, copy)


def kept(environment: Path, folder: Path) -> None:
    """Store all files of an environment in a folder, unchanged. Raises OSError."""
    put = _Copier()
    for source, inside in walked(environment):
        target = folder / inside
        if source.is_symlink():
            target.symlink_to(os.readlink(source))  # noqa: PTH115 - the target as written
        elif os.path.isdir(source):
            target.mkdir(exist_ok=True)
        elif os.path.isfile(source):
            put(source, target)
    _folders_like(environment, folder)


def restore(environment: Path, folder: Path) -> None:
    """Restore an environment's files from a folder, and remove later ones. Raises OSError."""
    kept = {inside: source for source, inside in walked(folder)}
    for inside, source in kept.items():
        target = environment / inside
        if is_folder(source):
            if os.path.lexists(target) and (not is_folder(target)):
                target.unlink()
            target.mkdir(exist_ok=True)
        elif not _is_same(source, target):
            _restore(source, target)
    for path, inside in reversed(list(walked(environment))):
        if inside not in kept:
            path.rmdir() if is_folder(path) else path.unlink()
    for inside, source in kept.items():
        if is_folder(source):
            with contextlib.suppress(PermissionError):  # another user's: its times cannot be restored
                shutil.copystat(source, environment / inside)


def manifest(folder: Path) -> dict[str, int]:
    """Return each file's modification time in nanoseconds, except bytecode, which any import may write."""
    return {
        inside: os.lstat(path).st_mtime_ns
        for path, inside in walked(folder)
        if not inside.endswith(".pyc") and (not is_folder(path))
    }


def walked(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield all entries of an environment, folders before their contents, with their relative paths.

    No link is followed.
    """
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        for entry in sorted(os.scandir(folder / inside), key=lambda entry: entry.name):
            path = f"{inside}/{entry.name}" if inside else entry.name
            if path == OWN:
                continue
            yield Path(entry.path), path
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)


def read_only_folder(environment: Path) -> Path | None:
    """Return an environment's first folder in which this user may not create files, None if there is none."""
    folders = (path for path, _ in walked(environment) if is_folder(path))
    return next((folder for folder in (environment, *folders) if is_read_only(folder)), None)


def is_read_only(folder: Path) -> bool:
    """Return whether this user may not create files in a folder."""
    return not os.access(folder, os.W_OK | os.X_OK, effective_ids=True)


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder, not a link to one."""
    return os.path.isdir(path) and not path.is_symlink()


class _Copier:
    """Copies a file in the cheapest way that this disk supports: clone, hard link, or copy."""

    def __init__(self) -> None:
        self._ways: list[Callable[[Path, Path], None]] = [_clone, _other_name, _copy]

    def __call__(self, source: Path, target: Path) -> None:
        for way in tuple(self._ways):
            try:
                return way(source, target)
            except OSError as error:  # noqa: PERF203 - three at most
                if way is _copy or error.errno not in _NEVER | _NOT_THIS_FILE:
                    raise
                if error.errno in _NEVER:
                    self._ways.remove(way)
        return None


def _clone(source: Path, target: Path) -> None:
    with open(source, "rb") as old:  # noqa: PTH123
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.ioctl(descriptor, _CLONE, old.fileno())
        except OSError:
            target.unlink()
            raise
        finally:
            os.close(descriptor)
    shutil.copystat(source, target)


def _other_name(source: Path, target: Path) -> None:
    os.link(source, target, follow_symlinks=False)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    shutil.copystat(source, target)


def _write(target: Path, content: bytes, model: Path) -> None:
    target.write_bytes(content)
    shutil.copystat(model, target)


def _link(source: Path, target: Path, environment: Path, copy: Path) -> None:
    """Copy a link. A link into the environment becomes a link into the copy."""
    leads_to = os.readlink(source)  # noqa: PTH115 - the target as written
    for prefix in (str(environment), os.path.realpath(environment)):
        if leads_to == prefix or leads_to.startswith(f"{prefix}/"):
            leads_to = f"{copy}{leads_to[len(prefix) :]}"
            break
    target.symlink_to(leads_to)


def _names_of(environment: Path, copy: Path) -> tuple[re.Pattern[bytes], bytes]:
    """Return how files name the environment, with the replacements."""
    spelled = dict.fromkeys((os.fsencode(environment), os.fsencode(os.path.realpath(environment))))
    pattern = b"|".join(re.escape(name) for name in sorted(spelled, key=len, reverse=True))
    return re.compile(rb"(?<![\w.-])(?:" + pattern + rb")(?![\w.-])"), os.fsencode(copy)


def _renamed(source: Path, inside: str, names: tuple[re.Pattern[bytes], bytes]) -> bytes | None:
    """Return the content of a file that names its environment, with the new name; None for any other file."""
    if not _may_name_environment(inside) or source.stat().st_size > _LARGEST_TEXT:
        return None
    content = source.read_bytes()
    if b"\0" in content or not names[0].search(content):
        return None
    return _runnable(names[0].sub(lambda _: names[1], content))


def _may_name_environment(inside: str) -> bool:
    folder, _, name = inside.rpartition("/")
    return (
        folder == "bin"
        or inside == "pyvenv.cfg"
        or name == "direct_url.json"
        or name.startswith("__editable__")
        or name.endswith((".pth", ".egg-link"))
    )


def _runnable(content: bytes) -> bytes:
    """Let the shell start a script whose first line became too long for the kernel, in pip's form."""
    first, newline, rest = content.partition(b"\n")
    if not first.startswith(b"#!/") or len(first) <= _LONGEST_FIRST_LINE or b"python" not in first:
        return content
    return b"#!/bin/sh\n'''exec' \"" + first[2:].strip() + b'" "$0" "$@"\n\' \'\'\'' + newline + rest


def _recorded(copy: Path, rewritten: Mapping[str, bytes]) -> None:
    """Write the new digests of rewritten files into the RECORD of their packages."""
    names = {os.path.basename(path) for path in rewritten}  # noqa: PTH119 - texts
    for record in copy.glob("lib/python*/site-packages/*.dist-info/RECORD"):
        text = record.read_text(encoding="utf-8", errors="surrogateescape")
        if not any(name in text for name in names):
            continue
        site = record.parent.parent
        rows = list(csv.reader(io.StringIO(text, newline="")))
        new = [_row(row, rewritten.get(os.path.normpath(site / row[0])) if row else None) for row in rows]
        if new != rows:
            about = record.stat()
            lines = io.StringIO(newline="")
            csv.writer(lines, lineterminator="\n").writerows(new)
            record.unlink()  # it may be a hard link to the original
            record.write_text(lines.getvalue(), encoding="utf-8", errors="surrogateescape")
            os.utime(record, ns=(about.st_atime_ns, about.st_mtime_ns))
            record.chmod(stat.S_IMODE(about.st_mode))


def _row(row: list[str], content: bytes | None) -> list[str]:
    if content is None or len(row) < 3 or not row[1]:
        return row
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return [row[0], f"sha256={digest}", str(len(content))]


def _folders_like(environment: Path, copy: Path) -> None:
    """Give a copy's folders the originals' times, modes and attributes, but let their owner write.

    The copy will change or be removed.
    """
    for source, inside in walked(environment):
        if is_folder(source):
            shutil.copystat(source, copy / inside)
            (copy / inside).chmod(stat.S_IMODE(source.stat().st_mode) | stat.S_IRWXU)


def _is_same(kept_one: Path, present: Path) -> bool:
    """Return whether a stored file is still identical to the original."""
    try:
        old, new = kept_one.lstat(), present.lstat()
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(old.st_mode) or stat.S_ISLNK(new.st_mode):
        both = stat.S_ISLNK(old.st_mode) and stat.S_ISLNK(new.st_mode)
        return both and os.readlink(kept_one) == os.readlink(present)  # noqa: PTH115 - the target as written
    if os.path.samestat(old, new):
        return True
    return (old.st_mode, old.st_size, old.st_mtime_ns) == (new.st_mode, new.st_size, new.st_mtime_ns)


def _restore(source: Path, target: Path) -> None:
    if is_folder(target):
        shutil.rmtree(target)
    beside = target.with_name(f".verl-doctor-back-{target.name}")
    beside.unlink(missing_ok=True)
    if source.is_symlink():
        beside.symlink_to(os.readlink(source))  # noqa: PTH115 - the target as written
    else:
        _Copier()(source, beside)
    os.replace(beside, target)  # noqa: PTH105 - given two names of one file, rename(2) keeps both
    beside.unlink(missing_ok=True)
