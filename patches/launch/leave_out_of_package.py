"""Fix for RAY130: exclude large files that the job does not name from what Ray uploads to the cluster."""

from __future__ import annotations

from verl_doctor.checks.ray._ray_package import can_stay, patterns
from verl_doctor.patches.shared.edited_files import edited_files
from verl_doctor.toolkit.change import Change, Refusal, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.package import RayPackage
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding


@fix("leave-out-of-package", repairs="RAY130", safety="safe")
def leave_out_of_package(
    _: Finding, package: RayPackage, launch: Launch, sources: SourceFiles, marker: Marker
) -> list[Change] | Refusal:
    """Exclude large files and folders that the job does not name from what Ray uploads to the cluster.

    Candidates are folders without code, virtual environments and single large files. The largest are excluded
    first, and no more than necessary.
    """
    from verl_doctor.toolkit.edit.line_list import extended  # noqa: PLC0415 - PyYAML, for a file that is edited

    stays = can_stay(package, launch)
    if not stays:
        return Refusal("the rest is too large even without everything that the job does not name")
    if not package.listed_in:
        return Refusal(
            f"there is no YAML file to list the exclusions in; write into {package.folder}/.gitignore: "
            f"{' '.join(patterns(stays))}"
        )
    return edited_files(
        [package.listed_in],
        sources,
        lambda path, before: extended(before, path, "excludes", patterns(stays), marker.comment("RAY130")),
    )
