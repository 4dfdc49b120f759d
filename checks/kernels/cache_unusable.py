"""CUDA136: a cache folder is not writable, full, or on a mount from which compiled code cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.caches import HUGGING_FACE, PROGRAMS, TRITON, cache, here, in_words
from verl_doctor.toolkit.collectors.host.caches import CacheFolder, Caches
from verl_doctor.toolkit.rule import Evidence, Example, Finding, check

_LITTLE = 256 << 20  # bytes: one model leaves tens to hundreds of megabytes
_FEW = 5_000  # files


def _examples() -> list[Example]:
    return [
        Example("room enough", (here(TRITON()),)),
        Example("models that are only read", (here(HUGGING_FACE(writable=False, read_only=True)),)),
        Example("a file system that does not count files", (here(TRITON(files=None)),)),
        Example("another user's folder", (here(TRITON(writable=False)),), "is not writable for this user"),
        Example("a read-only mount", (here(TRITON(read_only=True)),), "is mounted read-only"),
        Example("a hardened /tmp", (here(TRITON(no_programs=True)),), "is mounted with noexec"),
        Example("a full disk", (here(TRITON(free=10 << 20)),), "10 MiB are left"),
        Example("no inodes", (here(TRITON(files=12)),), "room for 12 more files"),
    ]


@check("CUDA136", phase="engine", examples=_examples)
def cache_unusable(caches: Caches) -> Iterator[Finding]:
    """A cache folder is not writable, is full, or is on a mount from which compiled code cannot be loaded.

    ## Why it matters

    Triton and torch.compile do not fall back to memory: if a kernel cannot be stored, the process fails with
    `PermissionError`, `No space left on device` (also when only the inodes are used up), or `failed to map
    segment from shared object` on a mount with `noexec`.

    ## How to fix

    Set its variable to a writable folder on this node, for all processes of the job.
    """
    for folder in caches.folders:
        problem = _problem(folder) if folder.variable in PROGRAMS else ""
        if problem:
            yield Finding(
                f"{in_words(folder)}: the folder {problem}",
                Evidence(
                    f"{folder.kind} on {folder.mounted_on}",
                    "a writable folder with free space, on a mount without noexec",
                    folder.set_by or folder.variable,
                ),
                remedy=f"set {folder.variable} to a writable folder"
                + (f", below {caches.local}" if caches.local else ""),
                fix="local-caches" if caches.local else None,
                subject=cache(folder),
            )


def _problem(folder: CacheFolder) -> str:
    if folder.read_only:
        return "is mounted read-only"
    if not folder.writable:
        return "is not writable for this user"
    if folder.no_programs:
        return "is mounted with noexec, so compiled code there cannot be loaded"
    if folder.free is not None and folder.free < _LITTLE:
        return f"is nearly full: {folder.free >> 20} MiB are left"
    if folder.files is not None and folder.files < _FEW:
        return f"has room for {folder.files} more files only"
    return ""
