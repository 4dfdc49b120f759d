"""RAY131: Ray is set to spill objects to an unsuitable folder."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.folders import named, roomy
from verl_doctor.checks.shared.job_here import HERE, at_most_warning
from verl_doctor.toolkit.collectors.host.folders import Folder, Folders
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.spilling import Spilling
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_MEMORY = frozenset({"tmpfs", "ramfs"})
_BY = "RAY_object_spilling_directory of this shell"
_GIVEN = Spilling(paths=("/scratch/spill",), given_by=_BY)
_MOUNTS = "/proc/self/mountinfo"
_REMEDY = (
    "set ray start --object-spilling-directory to a folder on a local disk; by default Ray uses its "
    "session's folder"
)


def _example(spilling: Spilling = _GIVEN, **about: object) -> tuple[object, ...]:
    return (
        spilling,
        Folders((roomy(), roomy("spilled objects", "/scratch/spill", given_by=_BY, **about))),
        HERE,
    )


def _examples() -> list[Example]:
    return [
        Example("a local disk", _example()),
        Example("another storage", (Spilling(storage="smart_open", given_by=_BY), Folders((roomy(),)), HERE)),
        Example(
            "sessions on NFS, which HOST107 reports",
            (_GIVEN, Folders((roomy(shared=True, kind="nfs4"),)), HERE),
        ),
        Example(
            "not JSON",
            (
                Spilling(
                    wrong="it is not a JSON object", given_by="RAY_object_spilling_config of this shell"
                ),
                Folders(),
                HERE,
            ),
            "Ray cannot read RAY_object_spilling_config of this shell: it is not a JSON object",
        ),
        Example(
            "a read-only disk",
            _example(writable=False, read_only=True),
            (
                "Ray cannot write to /scratch/spill (spilled objects, by RAY_object_spilling_directory of "
                "this shell)"
            ),
        ),
        Example("another user's folder", _example(writable=False), "Ray cannot write to /scratch/spill"),
        Example("memory", _example(kind="tmpfs"), "would spill objects from memory into memory"),
        Example("NFS", _example(shared=True, kind="nfs4"), "lies on nfs4"),
    ]


@check("RAY131", phase="ray", examples=_examples)
def spilling_in_a_bad_place(spilling: Spilling, folders: Folders, here: JobHere) -> Iterator[Finding]:
    """Ray is set to spill objects to an unsuitable folder.

    ## Why it matters

    Objects that do not fit into Ray's memory go to this folder, and so does its object store when it is full
    of objects in use. A head does not start if the folder cannot be created; a worker node starts, and loses
    objects later. In /dev/shm or another memory file system, spilling takes as much memory as it frees. On a
    network file system each spilled batch is written and read at the speed of the network.

    ## How to fix

    Name a folder on a large local disk of every node, or none: Ray then uses its session's folder. HOST106
    checks the free space.
    """
    if spilling.wrong:
        yield Finding(
            f"Ray cannot read {spilling.given_by}: {spilling.wrong}",
            Evidence(
                found=spilling.wrong,
                wanted='{"type": "filesystem", "params": {"directory_path": "/a/local/folder"}}',
            ),
            subject=Subject("setting", "object_spilling_config"),
            remedy=_REMEDY,
            severity=at_most_warning(here),
        )
    for folder in folders.of("spilled objects"):
        yield from _about(folder, here)


def _about(folder: Folder, here: JobHere) -> Iterator[Finding]:
    if not folder.writable:
        yield Finding(
            f"Ray cannot write to {named(folder)}",
            Evidence(
                found="mounted ro" if folder.read_only else "no write permission, or no such folder",
                wanted="a folder that this user may write to",
                read_from=folder.path,
            ),
            subject=Subject("folder", folder.path),
            remedy=_REMEDY,
            severity=at_most_warning(here),
        )
    elif folder.kind in _MEMORY:
        yield Finding(
            f"Ray would spill objects from memory into memory: {named(folder)} lies on {folder.kind}",
            Evidence(found=folder.kind, wanted="a disk", read_from=_MOUNTS),
            subject=Subject("folder", folder.path),
            remedy=_REMEDY,
            severity="warning",
        )
    elif folder.shared:
        yield Finding(
            f"{named(folder)} lies on {folder.kind}: spilled objects go over the network",
            Evidence(found=folder.kind, wanted="a disk of this machine", read_from=_MOUNTS),
            subject=Subject("folder", folder.path),
            remedy=_REMEDY,
            severity="info",
        )
