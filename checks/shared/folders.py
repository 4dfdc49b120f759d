"""Shared by the rules about temporary folders."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.host.folders import Folder, Folders

GIB = 1 << 30


def roomy(use: str = "Ray's sessions", path: str = "/tmp/ray", **others: object) -> Folder:
    """A folder without any fault, for examples."""
    about = {
        "size": 250 * GIB,
        "free": 130 * GIB,
        "inodes": 16_000_000,
        "inodes_free": 15_000_000,
        "kind": "ext4",
    }
    return Folder(use=use, path=path, **{**about, **others})  # type: ignore[arg-type]


def file_systems(folders: Folders) -> Iterator[Folder]:
    """Yield one folder of each file system, to report the same space only once."""
    seen = set()
    for folder in folders.folders:
        space = (folder.size, folder.free, folder.inodes_free)
        if space not in seen:
            seen.add(space)
            yield folder


def named(folder: Folder) -> str:
    """The folder, its purpose and what chose it."""
    return f"{folder.path} ({folder.use}{', by ' + folder.given_by if folder.given_by else ''})"
