"""Fix for CUDA135 and CUDA136: caches in a folder on the node's own disk."""

from __future__ import annotations

from verl_doctor.checks.shared.caches import in_words, is_about, moved
from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.host.caches import CacheFolder, Caches
from verl_doctor.toolkit.rule import Finding


@fix("local-caches", repairs=("CUDA135", "CUDA136"), safety="safe", restart="Ray and the job")
def local_caches(finding: Finding, caches: Caches) -> list[Change] | Refusal:
    """Keep compiled code in a folder on the node's own disk, the one with the most room.

    What was compiled before stays where it is, and is compiled again.
    """
    if not caches.local:
        return Refusal("no disk of this node has a folder that this user can write to")
    return [_moved(folder, caches.local) for folder in caches.folders if is_about(finding, folder)]


def _moved(folder: CacheFolder, local: str) -> SetVariable:
    why = f"{in_words(folder)} is on an unsuitable disk: {folder.kind} on {folder.mounted_on}"
    return SetVariable(folder.variable, moved(folder, local), why, node_only=True)
