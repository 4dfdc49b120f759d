"""RAY130: the folder that Ray uploads to the cluster is larger than Ray accepts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.ray._ray_package import can_stay, patterns
from verl_doctor.checks.shared.launch_examples import GOOD
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.package import PackagePart, RayPackage
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import counted, in_bytes, listed

_MIB = 1 << 20
_NEARLY = 0.8
_SHOWN = 4
_YAML = "/home/me/runtime_env.yaml"
_SMALL = RayPackage(
    folder="/home/me/verl", path=_YAML, line=1, size=9 * _MIB, files=900, limit=100 * _MIB, listed_in=_YAML
)
_PARTS = (
    PackagePart(name="checkpoints/", size=6000 * _MIB),
    PackagePart(name="data/train.parquet", size=40 * _MIB),
)
_LARGE = replace(_SMALL, size=6049 * _MIB, parts=_PARTS)


def _undecided(package: RayPackage) -> Unknown | None:
    if package.whole or package.size >= package.limit:
        return None
    return Unknown(f"{package.folder} has too many files to count: {package.files} in 4 s")


def _examples() -> list[Example]:
    return [
        Example("a checkout of verl", (_SMALL, GOOD)),
        Example("checkpoints in the checkout", (_LARGE, GOOD), "5.9 GiB, but ray job submit accepts 100 MiB"),
        Example("too many files to count", (replace(_LARGE, whole=False), GOOD), "at least 5.9 GiB"),
        Example(
            "the job's own ray.init sends the folder",
            (replace(_LARGE, submitted=False, limit=512 * _MIB), GOOD),
            "but Ray accepts 512 MiB",
        ),
        Example(
            "nearly too large",
            (replace(_SMALL, size=90 * _MIB), GOOD),
            "90.0 MiB, but ray job submit accepts 100 MiB",
        ),
        Example(
            "an unreadable folder inside",
            (
                replace(_SMALL, failed="PermissionError: [Errno 13] Permission denied: '/home/me/verl/x'"),
                GOOD,
            ),
            "Ray cannot pack",
        ),
    ]


@check("RAY130", phase="ray", applies=_undecided, examples=_examples)
def working_dir_too_large(package: RayPackage, launch: Launch) -> Iterator[Finding]:
    """The folder that Ray uploads to the cluster is larger than Ray accepts.

    ## Why it matters

    `ray job submit` packs the `working_dir` without compression and sends it through the dashboard, whose
    limit is lower than that of the store behind it: `Maximum request body size 104857600 exceeded`,
    `HTTPRequestEntityTooLarge`, `Package size ... exceeds the maximum size`. In verl's own `runtime_env.yaml`
    it is the whole checkout without `/.git/`: checkpoints, outputs and data of earlier runs are included.
    Before that Ray reads every file twice.

    ## How to fix

    Exclude what the job does not need: with `excludes` in the `runtime_env`, in .gitignore syntax, or with a
    .gitignore, which Ray obeys. Refer to data and models by absolute paths on a disk that all nodes share.
    """
    where = Location(package.path, package.line)
    if package.failed:
        yield Finding(
            f"Ray cannot pack {package.folder} for the cluster",
            Evidence(found=package.failed, read_from="Ray's own functions, on its files"),
            subject=Subject("folder", package.folder),
            location=where,
            remedy="make it readable, or exclude it with excludes in the runtime_env",
        )
        return
    if package.size < package.limit * _NEARLY:
        return
    largest = listed((f"{part.name} ({in_bytes(part.size)})" for part in package.parts), _SHOWN)
    too_large = package.size >= package.limit
    stays = can_stay(package, launch) if too_large else ()
    yield Finding(
        (
            f"{package.folder} is uploaded to the cluster with the job: "
            f"{'' if package.whole else 'at least '}{in_bytes(package.size)}, but "
            f"{'ray job submit' if package.submitted else 'Ray'} accepts {in_bytes(package.limit)}"
        ),
        Evidence(
            found=f"{in_bytes(package.size)} in {counted(package.files, 'file')}"
            + (f"; the largest parts are {largest}" if largest else ""),
            wanted=f"less than {in_bytes(package.limit)}",
            read_from="Ray's own functions, on its files",
        ),
        subject=Subject("folder", package.folder),
        location=where,
        remedy=f"exclude what the job does not use: excludes: [{', '.join(patterns(stays))}]"
        if stays
        else (
            "upload a folder with only the sources, or exclude what the job does not need (excludes, "
            ".gitignore)"
        ),
        severity=None if too_large else "info",
        fix="leave-out-of-package" if stays and package.listed_in else None,
    )
