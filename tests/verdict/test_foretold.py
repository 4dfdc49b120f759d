"""What `check` foretold the first time, it still foretells."""

from __future__ import annotations

import pytest
from support.trying import sampled
from verdict.outcomes import CASES, FORETOLD, SINCE
from verdict.predict import Predictor

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=100)]


@pytest.mark.parametrize("name", sampled(FORETOLD))
def test_first_prediction_is_kept(name: str, predictor: Predictor) -> None:
    assert predictor.foretell(CASES[name], SINCE.get(name, ())).fails
