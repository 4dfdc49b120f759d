"""No job that trained is alarmed."""

from __future__ import annotations

import pytest
from support.trying import sampled
from verdict.outcomes import CASES, HEALTHY
from verdict.predict import Predictor

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=100)]


@pytest.mark.parametrize("name", sampled(HEALTHY))
def test_job_that_trained_has_no_errors(name: str, predictor: Predictor) -> None:
    found = predictor.foretell(CASES[name])
    assert found.verdict in {"ok", "warnings"}, found
