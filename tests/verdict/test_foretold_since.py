"""What `check` missed the first time and foretells since, it still foretells."""

from __future__ import annotations

import pytest
from support.trying import sampled
from verdict.outcomes import CASES, NOW_FORETOLD, SINCE
from verdict.predict import Predictor

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=100)]


@pytest.mark.parametrize("name", sampled(NOW_FORETOLD))
def test_later_prediction_is_kept(name: str, predictor: Predictor) -> None:
    assert predictor.foretell(CASES[name], SINCE.get(name, ())).fails
