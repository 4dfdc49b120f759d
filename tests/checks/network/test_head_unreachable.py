"""An address that nothing answers stops a job only where a setting of the job names it."""

from __future__ import annotations

import pytest

from verl_doctor.checks.network.head_unreachable import head_unreachable
from verl_doctor.toolkit.collectors.connections.heads_reached import HeadsReached, Knock
from verl_doctor.toolkit.collectors.ray.job_nodes import Head
from verl_doctor.toolkit.facts import Absent


@pytest.mark.parametrize(
    ("head", "severity"),
    [
        (Head("10.0.0.9", "RAY_ADDRESS of this shell", 6379), None),  # the rule's own: an error
        (Head("10.0.0.9", "raylet 6602", 6379, raylet=6602), "warning"),
    ],
)
def test_raylet_of_another_job_stops_none(head: Head, severity: str | None) -> None:
    reached = HeadsReached((Knock(head, "refused", "Connection refused"),))
    (found,) = head_unreachable.judge(reached, Absent("no address"))
    assert found.severity == severity
