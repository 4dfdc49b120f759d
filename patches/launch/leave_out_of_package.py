"""Fix for RAY130: leave large parts that the job does not name out of what Ray sends to the cluster."""

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
    """Leave large parts that the job does not name out of what Ray sends to the cluster.

    They are folders without any program, virtual environments and single large files, the largest first and no more than
    it takes.
    """
    from verl_doctor.toolkit.edit.line_list import extended  # noqa: PLC0415 - PyYAML, for a file that is edited

    stays = can_stay(package, launch)
    if not stays:
        return Refusal("no choice of what the job does not name makes the rest small enough")
    if not package.listed_in:
        return Refusal(
            f"no YAML file lists what is left out; write into {package.folder}/.gitignore: {' '.join(patterns(stays))}"
        )
    return edited_files(
        [package.listed_in],
        sources,
        lambda path, before: extended(before, path, "excludes", patterns(stays), marker.comment("RAY130")),
    )
