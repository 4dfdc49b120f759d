"""Fixes that put the driver's own library first: each is offered by its rule with its own reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from verl_doctor.checks.driver.cuda_does_not_start import cuda_does_not_start
from verl_doctor.checks.driver.libcuda_not_found import libcuda_not_found
from verl_doctor.checks.driver.libcuda_older_than_driver import libcuda_older_than_driver
from verl_doctor.checks.shared.libcuda import COMPAT, FOLDER, OWN, WORKS, machine
from verl_doctor.patches.variables.driver_before_compat import driver_before_compat
from verl_doctor.patches.variables.driver_on_path import driver_on_path
from verl_doctor.patches.variables.driver_own import driver_own
from verl_doctor.toolkit.change import Fix, SetVariable
from verl_doctor.toolkit.collectors.cuda.init import CudaAnswer, CudaInit
from verl_doctor.toolkit.collectors.cuda.libcuda import LibCuda
from verl_doctor.toolkit.collectors.installed.sources import SourceFiles
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.marker import Marker
from verl_doctor.toolkit.rule import Check
from verl_doctor.toolkit.testing import run_check

NOT_SEARCHED = machine(elsewhere=(replace(OWN, how="", entry=""),))
OLDER_FIRST = machine(COMPAT, OWN)
UNREAD = Unknown("no launch file")
OWN_WORKS = CudaInit(CudaAnswer(COMPAT.real, 804), own_file=WORKS)


@pytest.mark.parametrize(
    ("rule", "fix", "libcuda", "init", "because"),
    [
        (libcuda_not_found, driver_on_path, NOT_SEARCHED, Unknown("not asked"), "does not search"),
        (libcuda_older_than_driver, driver_before_compat, OLDER_FIRST, Unknown("not asked"), "older than"),
        (cuda_does_not_start, driver_own, OLDER_FIRST, OWN_WORKS, "does not start"),
    ],
    ids=lambda value: getattr(value, "code", getattr(value, "id", None)),
)
def test_driver_folder_is_prepended_on_this_node(
    rule: Check, fix: Fix, libcuda: LibCuda, init: Any, because: str
) -> None:
    started = (CudaInit, init) if isinstance(init, Unknown) else init
    (finding,) = run_check(rule, libcuda, started).findings
    assert finding.fix == fix.id
    given = (libcuda, UNREAD, SourceFiles(), Marker()) if fix is driver_before_compat else (libcuda,)
    (change,) = fix.plan(finding, *given)
    assert isinstance(change, SetVariable)
    assert (change.name, change.value, change.prepend, change.node_only) == (
        "LD_LIBRARY_PATH",
        FOLDER,
        True,
        True,
    )
    assert because in change.why
