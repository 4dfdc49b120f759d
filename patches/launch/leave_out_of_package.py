"""Fix for RAY130: leave large parts that the job does not name out of what Ray sends to the cluster."""

from __future__ import annotations

from pathlib import Path

from verl_doctor.checks.ray._ray_package import can_stay, patterns
from verl_doctor.toolkit.change import Change, Refusal, ReplaceFile, fix
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.ray.package import RayPackage
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.sources.python.edit import CannotEdit
from verl_doctor.toolkit.sources.python.source import Unreadable


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
    before = sources.read(package.listed_in)
    if isinstance(before, Unreadable):
        return Refusal(before.reason)
    try:
        after = extended(before, package.listed_in, "excludes", patterns(stays), marker.comment("RAY130"))
    except CannotEdit as reason:
        return Refusal(str(reason))
    return [ReplaceFile(Path(package.listed_in), before, after)]
