"""HOST106: the disk of Ray's sessions, of spilled objects or of temporary files is nearly full."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.folders import GIB, file_systems, named, roomy
from verl_doctor.checks.shared.job_here import HERE, at_most_warning, hint
from verl_doctor.checks.shared.limits_examples import gpus
from verl_doctor.toolkit.collectors.host.folders import Folder, Folders
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import in_bytes

_VARIABLE = "RAY_local_fs_capacity_threshold"
_RAYS_OWN = 0.95  # ray_config_def.h
# The share of the machine's memory that Ray's object store may hold, and so may spill at once.
_STORE_PART, _STORE_MOST = 0.3, 200 * 10**9
_NEARLY = 0.9
_ELSEWHERE = {
    "Ray's sessions": "set RAY_TMPDIR to a short path",
    "temporary files": "set TMPDIR to a short path",
    "spilled objects": "make Ray spill into a folder",
}
_FEW_INODES, _FEW_OF_ALL = 100_000, 0.02


def _example(*folders: Folder, **variables: str) -> tuple[object, ...]:
    return Folders(folders), gpus(8), Variables(variables), HERE


def _left(free: float, size: float = 1758) -> Folder:
    return roomy(size=int(size * GIB), free=int(free * GIB))


def _examples() -> list[Example]:
    return [
        Example("room", _example(roomy())),
        Example("a small, half-empty disk", _example(_left(20, 40))),
        Example(
            "a higher threshold is set", _example(_left(80, 2000), RAY_local_fs_capacity_threshold="0.99")
        ),
        Example("95 % of a large disk", _example(_left(300, 7000)), "Ray will not spill into"),
        Example("5.79 GB of 1758", _example(_left(5.79)), "has 5.8 GiB left"),
        Example(
            "both folders on one disk",
            _example(_left(5), roomy("temporary files", "/tmp", size=1758 * GIB, free=5 * GIB)),
            "has 5.0 GiB left",
        ),
        Example(
            "the folder for spilled objects",
            _example(roomy(), roomy("spilled objects", "/scratch/spill", size=1758 * GIB, free=5 * GIB)),
            "/scratch/spill (spilled objects) has 5.0 GiB left",
        ),
        Example("nothing left", _example(_left(0.2)), "has 205 MiB left"),
        Example(
            "no inodes", _example(roomy(inodes=6_000_000, inodes_free=900)), "has room for 900 more files"
        ),
    ]


@check("HOST106", phase="ray", severity="warning", examples=_examples)
def temporary_folder_full(
    folders: Folders, resources: Resources, variables: Variables, here: JobHere
) -> Iterator[Finding]:
    """The disk of Ray's sessions, of spilled objects or of temporary files is nearly full.

    ## Why it matters

    Ray writes its logs there, and objects that do not fit into its memory. It counts in percent: above 95 %
    it repeats `is over 95% full ... Object creation will fail if spilling is required` and no longer spills,
    even with hundreds of gigabytes free. That alone is harmless to a job that does not spill. With only a few
    gigabytes left, logs and checkpoints stop the job within hours.

    ## How to fix

    Remove sessions of finished jobs (`session_*` and `*_spill_*` that no process uses), or move Ray
    elsewhere: RAY_TMPDIR or `ray start --temp-dir` with a short path on a large local disk. If only the
    percentage is high, set RAY_local_fs_capacity_threshold before Ray starts.
    """
    value = variables.get(_VARIABLE)
    threshold = float(value) if value.replace(".", "", 1).isdigit() else _RAYS_OWN
    spilled = min((resources.memory or 0) * _STORE_PART, _STORE_MOST)
    for folder in file_systems(folders):
        if folder.full is None or folder.size is None or folder.free is None:
            continue
        evidence = Evidence(
            found=f"{in_bytes(folder.free)} free of {in_bytes(folder.size)}, {folder.full:.0%} full",
            wanted=f"{in_bytes(spilled)}, as much as Ray may spill at once",
            read_from=f"{folder.path}, {folder.kind}",
        )
        if folder.free < GIB or (folder.full > _NEARLY and folder.free < spilled):
            yield Finding(
                f"{named(folder)} has {in_bytes(folder.free)} left",
                evidence,
                subject=Subject("folder", folder.path),
                remedy=(
                    f"remove what finished jobs left there, or {_ELSEWHERE[folder.use]} on a larger local "
                    "disk"
                ),
                severity=at_most_warning(here) or ("error" if folder.free < GIB else None),
            )
        elif folder.full > threshold and folder.use != "temporary files":
            enough = min(0.999, 1 - max(spilled, GIB) / folder.size)
            yield Finding(
                (
                    f"Ray will not spill into {named(folder)}, which is {folder.full:.0%} full: harmless "
                    "unless objects must be spilled"
                ),
                evidence,
                subject=Subject("folder", folder.path),
                remedy=(
                    f"if objects must be spilled, set {_VARIABLE}={enough:.3f} before Ray starts, which "
                    f"leaves {in_bytes(spilled)}"
                ),
                severity="info",
            )
        few = (
            folder.inodes
            and folder.inodes_free is not None
            and folder.inodes_free < _FEW_OF_ALL * folder.inodes
        )
        if few and (folder.inodes_free or 0) < _FEW_INODES:
            yield Finding(
                f"{named(folder)} has room for {folder.inodes_free} more files",
                Evidence(
                    found=f"{folder.inodes_free} inodes free of {folder.inodes}",
                    wanted=f"{_FEW_INODES}",
                    read_from=f"{folder.path}, {folder.kind}",
                ),
                subject=Subject("folder", folder.path, "inodes"),
                remedy=(
                    "remove small files there, such as caches of package managers and compilers; df -i "
                    "shows the inodes"
                ),
                severity=hint(here),
            )
