"""HOST109: a temporary folder cannot be written, or nothing in it can be run."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.folders import named, roomy
from verl_doctor.checks.shared.job_here import HERE, at_most_warning, hint
from verl_doctor.toolkit.collectors.host.folders import Folder, Folders
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _example(*folders: Folder) -> tuple[object, ...]:
    return Folders(folders), HERE


def _examples() -> list[Example]:
    return [
        Example("writable", _example(roomy(), roomy("temporary files", "/tmp"))),
        Example("noexec does not matter for Ray's sessions", _example(roomy(runnable=False))),
        Example(
            "another user's raylet created it",
            _example(roomy(writable=False)),
            "this user cannot write to /tmp/ray",
        ),
        Example(
            "read-only",
            _example(roomy("temporary files", "/tmp", writable=False, read_only=True)),
            "/tmp (temporary files) is mounted read-only",
        ),
        Example("noexec", _example(roomy("temporary files", "/tmp", runnable=False)), "noexec"),
    ]


@check("HOST109", phase="ray", severity="error", examples=_examples)
def temporary_folder_unusable(folders: Folders, here: JobHere) -> Iterator[Finding]:
    """A temporary folder is not writable, or nothing in it can be executed.

    ## Why it matters

    Ray stops with `Permission denied` when another user owns its folder. On a disk mounted with `noexec`,
    what Triton and torch.compile build in TMPDIR cannot be loaded: `failed to map segment from shared
    object`.

    ## How to fix

    Before Ray starts, set RAY_TMPDIR and TMPDIR to a folder of your own on a local disk that is mounted
    without `noexec`.
    """
    for folder in (*folders.of("Ray's sessions"), *folders.of("temporary files")):
        if not folder.writable:
            of_ray = folder.use == "Ray's sessions"
            yield Finding(
                f"{named(folder)} is mounted read-only"
                if folder.read_only
                else f"this user cannot write to {named(folder)}",
                Evidence(
                    found="mounted ro" if folder.read_only else "no permission to write",
                    wanted="a folder owned by this user",
                    read_from=folder.path,
                ),
                remedy="set RAY_TMPDIR to a short path of your own, before Ray starts"
                if of_ray
                else "set TMPDIR to a folder of your own on a local disk",
                severity=at_most_warning(here),
                fix="short-ray-folder" if of_ray else None,
                subject=Subject("folder", folder.path, folder.use),
            )
        elif not folder.runnable and folder.use == "temporary files":
            yield Finding(
                f"{named(folder)} is mounted with noexec: compiled kernels there cannot be loaded",
                Evidence(found="noexec", wanted="a mount without it", read_from="/proc/self/mountinfo"),
                remedy="set TMPDIR to a folder on another local disk",
                severity=hint(here) or "warning",
                subject=Subject("folder", folder.path, folder.use),
            )
