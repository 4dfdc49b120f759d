"""Turns a link to a folder outside its environment into a folder of links.

Changed files in it are private copies.

Only the files that change are copied; every other entry is a link to the original. The folder is created next
to the link, which is redirected to it in one step, so the package is complete at every instant. Bytecode
caches are not linked: Python would write this environment's caches to the others.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.change import Change, ReplaceFile
from verl_doctor.toolkit.changes import links, safe_write
from verl_doctor.toolkit.changes.links import LinkOut
from verl_doctor.toolkit.changes.records import FileRecord, Planned

_CACHE = "__pycache__"
_TEMPORARY = ".verl-doctor-"
_MODE_OF_LINKS = "0644"


@dataclass(frozen=True)
class PrivateFolder:
    """A folder to be created.

    `link` is the link's real path, `target` where it leads, `inner` the folders in it that become real.
    """

    path: Path
    link: Path
    target: Path
    top: Path
    inner: list[Path] = field(default_factory=list)

    def file(self, path: Path) -> Path:
        """Return the path in it of a file that the plan reaches through the link."""
        return self.top / Path(os.path.abspath(path)).relative_to(self.path)

    def behind(self, path: Path) -> Path:
        """Return the target of that file's entry."""
        return self.target / Path(os.path.abspath(path)).relative_to(self.path)

    def add(self, path: Path) -> None:
        """Add the folders on the way to this file."""
        for folder in reversed(self.file(path).relative_to(self.top).parents):
            if self.top / folder not in self.inner:
                self.inner.append(self.top / folder)

    def planned(self) -> Planned:
        """Return its record. Raises OSError."""
        about, old, new = self.link.lstat(), os.fsencode(self.link.readlink()), os.fsencode(self.top.name)
        record = FileRecord(
            kind="private_folder",
            path=str(self.path),
            file=str(self.link),
            before=safe_write.sha256(old),
            after=safe_write.sha256(new),
            mode=_MODE_OF_LINKS,
            uid=about.st_uid,
            gid=about.st_gid,
            folders=tuple(map(str, self.inner)),
            atime=about.st_atime_ns,
            mtime=about.st_mtime_ns,
        )
        return Planned(record, {"before": old, "after": new})


def wanted(changes: Iterable[Change]) -> dict[Path, PrivateFolder]:
    """Return the folders that these changes need, by the path of each change that needs one."""
    by_link: dict[Path, PrivateFolder] = {}
    found = {}
    for change in changes:
        out = links.link_out(change.path) if isinstance(change, ReplaceFile) else None
        if isinstance(change, ReplaceFile) and out is not None and not out.whole:
            found[change.path] = by_link.setdefault(out.link, _folder(out))
            found[change.path].add(change.path)
    return found


def build(record: FileRecord) -> None:
    """Fill the folders of a record, which exist and are empty. Raises OSError."""
    link, top = Path(record.file), Path(record.folders[0])
    target = Path(os.path.realpath(link))
    for folder in map(Path, record.folders):
        source = target / folder.relative_to(top)
        for name in os.listdir(source):  # noqa: PTH208 - names alone
            if name != _CACHE and str(folder / name) not in record.folders:
                (folder / name).symlink_to(source / name)
                os.chown(folder / name, record.uid, record.gid, follow_symlinks=False)
        os.chown(folder, record.uid, record.gid)
        folder.chmod(stat.S_IMODE(source.stat().st_mode))
        safe_write.sync_folder(folder)


def remove(record: FileRecord) -> None:
    """Remove the folders of a record, except for entries that are neither links nor caches.

    Raises OSError.
    """
    if not record.folders:
        return
    for folder in map(Path, reversed(record.folders)):
        for entry in _entries(folder):
            if entry.name == _CACHE and entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            elif entry.is_symlink() or entry.name.startswith(_TEMPORARY):
                os.unlink(entry.path)  # noqa: PTH108 - an entry of a folder
        safe_write.remove_if_empty(folder)
    safe_write.sync_folder(Path(record.file).parent)


def added_by_others(record: FileRecord, known: Collection[str]) -> list[str]:
    """Return what was added to the folders of a record, except for the `known` files. Raises OSError."""
    found = (entry for folder in record.folders for entry in _entries(Path(folder)))
    return [
        entry.path
        for entry in found
        if not (entry.is_symlink() or entry.name == _CACHE or entry.name.startswith(_TEMPORARY))
        and entry.path not in {*known, *record.folders}
    ]


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from list(entries)
    except FileNotFoundError:
        return


def _folder(out: LinkOut) -> PrivateFolder:
    link = Path(os.path.realpath(out.link.parent), out.link.name)
    names = (f".verl-doctor.{link.name}{number or ''}" for number in itertools.count())
    top = next(link.with_name(name) for name in names if not os.path.lexists(link.with_name(name)))
    return PrivateFolder(out.link, link, out.target, top)
