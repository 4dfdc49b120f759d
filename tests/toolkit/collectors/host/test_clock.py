"""The clock as reported by this kernel."""

from __future__ import annotations

import time

from verl_doctor.toolkit.collectors.host.clock import Clock, clock
from verl_doctor.toolkit.facts import Unknown


def test_clock_is_read_or_a_reason_given() -> None:
    found = clock.collect()
    if isinstance(found, Unknown):
        assert "clock" in found.reason
    else:
        assert isinstance(found, Clock)
        assert abs(found.now - time.time()) < 60
        assert found.error >= 0
