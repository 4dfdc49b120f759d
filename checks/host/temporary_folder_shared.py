"""HOST107: Ray's sessions lie on a file system that is shared with other machines."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.folders import named, roomy
from verl_doctor.checks.shared.job_here import HERE, hint
from verl_doctor.toolkit.collectors.host.folders import Folder, Folders
from verl_doctor.toolkit.collectors.host.job_here import JobHere
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check


def _example(folder: Folder) -> tuple[object, ...]:
    return Folders((folder,)), HERE


def _examples() -> list[Example]:
    return [
        Example("a local disk", _example(roomy())),
        Example(
            "temporary files of others there",
            _example(roomy("temporary files", "/home/me/tmp", kind="nfs4", shared=True)),
        ),
        Example(
            "NFS",
            _example(
                roomy(path="/home/me/tmp/ray", given_by="TMPDIR of this shell", kind="nfs4", shared=True)
            ),
            "lies on nfs4",
        ),
    ]


@check("HOST107", severity="warning", examples=_examples)
def temporary_folder_shared(folders: Folders, here: JobHere) -> Iterator[Finding]:
    """Ray's sessions lie on a file system that is shared with other machines.

    ## Why it matters

    Ray's processes communicate through sockets in that folder, which do not work between machines: `Could not
    connect to socket .../sockets/raylet.1` (verl-project/verl#158). The nodes also overwrite each other's
    `session_latest` and `ray_current_cluster`, and every log line and spilled object goes over the network.

    ## How to fix

    Set RAY_TMPDIR=/tmp, or another short path on a local disk, before Ray starts on every node; or pass `ray
    start --temp-dir`.
    """
    for folder in folders.of("Ray's sessions"):
        if folder.shared:
            yield Finding(
                f"{named(folder)} lies on {folder.kind}, which other machines share",
                Evidence(
                    found=folder.kind, wanted="a disk of this machine", read_from="/proc/self/mountinfo"
                ),
                remedy="set RAY_TMPDIR to a short path on a local disk, before Ray starts",
                severity=hint(here),
                fix="short-ray-folder",
                subject=Subject("folder", folder.path, folder.use),
            )
