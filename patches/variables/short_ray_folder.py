"""Fix for HOST108, HOST107, HOST109: give Ray a folder of this user's with a short path on a local disk."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.host.folders import Folders
from verl_doctor.toolkit.rule import Finding

_LEAST = 10 << 30


@fix("short-ray-folder", repairs=("HOST107", "HOST108", "HOST109"), safety="safe", restart="Ray")
def short_ray_folder(_: Finding, folders: Folders) -> list[Change] | Refusal:
    """Set RAY_TMPDIR to a folder of this user's with a short path on a local disk.

    Ray creates the folder. `ray start --temp-dir` or a configuration takes precedence over the variable, and
    must be edited instead.
    """
    spare = folders.spare
    if spare is None or not spare.writable or spare.shared:
        return Refusal("this user can write to no local folder with a short path")
    if spare.free is not None and spare.free < _LEAST:
        return Refusal(f"the disk of {spare.path} has too little room for Ray's sessions")
    for folder in folders.of("Ray's sessions"):
        if folder.given_by and "TMPDIR" not in folder.given_by:
            return Refusal(
                f"{folder.given_by} names the folder and takes precedence over RAY_TMPDIR; change it there"
            )
    return [SetVariable("RAY_TMPDIR", spare.path, node_only=True)]
