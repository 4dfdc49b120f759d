"""SITE102: the site's paths stop a job only where no launch script states which paths the job uses."""

from __future__ import annotations

import pytest

from verl_doctor.checks.shared.launch_examples import GOOD
from verl_doctor.checks.sites._sites_examples import MODEL, missing, sites
from verl_doctor.checks.sites.site_missing import site_missing
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.testing import run_check


@pytest.mark.parametrize(("launch", "severity"), [(GOOD, "warning"), (Absent("no launch script"), "error")])
def test_missing_path_is_an_error_only_without_a_launch_script(
    launch: Launch | Absent, severity: str
) -> None:
    (finding,) = run_check(site_missing, sites(missing(MODEL)), launch).findings
    assert finding.severity == severity
