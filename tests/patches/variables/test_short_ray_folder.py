"""A short folder for Ray, where one can be had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verl_doctor.patches.variables.short_ray_folder import short_ray_folder
from verl_doctor.toolkit.change import Refusal, SetVariable
from verl_doctor.toolkit.collectors.host.folders import Folder, Folders
from verl_doctor.toolkit.repair.plan import with_reason
from verl_doctor.toolkit.rule import Evidence, Finding

LONG = Folder("Ray's sessions", "/a/long/path/ray", "TMPDIR of this shell")
SPARE = Folder("Ray's sessions", "/tmp/ray-1000", size=90 << 30, free=80 << 30)
FINDING = Finding("too long", Evidence("found"))


def test_short_folder_is_set() -> None:
    changes = short_ray_folder.plan(FINDING, Folders((LONG,), SPARE))
    assert isinstance(changes, list)
    assert [with_reason(change, FINDING) for change in changes] == [
        SetVariable("RAY_TMPDIR", "/tmp/ray-1000", "too long", node_only=True)
    ]


@pytest.mark.parametrize(
    ("folders", "why"),
    [
        (Folders((LONG,)), "no local folder"),
        (Folders((LONG,), replace(SPARE, shared=True)), "no local folder"),
        (Folders((LONG,), replace(SPARE, writable=False)), "no local folder"),
        (Folders((LONG,), replace(SPARE, free=1 << 30)), "too little room"),
        (Folders((replace(LONG, given_by="run.sh:3"),), SPARE), "run.sh:3 names the folder"),
    ],
)
def test_unsuitable_folder_is_refused(folders: Folders, why: str) -> None:
    refusal = short_ray_folder.plan(FINDING, folders)
    assert isinstance(refusal, Refusal)
    assert why in refusal.reason
