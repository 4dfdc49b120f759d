"""When a job first validates, and thus when a fault in its validation file strikes."""

from __future__ import annotations

import pytest

from verl_doctor.checks.datasets._data import first_validation
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.facts import Unknown


@pytest.mark.parametrize(
    ("before", "every", "expected"),
    [
        ("True", "-1", "first batch"),
        ("False", "5", "first validation"),
        ("False", "-1", "never"),
        ("False", "0", "never"),
        ("0", "-1", "never"),
        ("False", "${oc.env:UNSET}", None),
        ("${oc.env:UNSET}", "-1", None),
        ("${oc.env:UNSET}", "5", "first validation"),
    ],
)
def test_settings_decide_when_a_job_first_validates(before: str, every: str, expected: str | None) -> None:
    (configuration,) = configured(f"++trainer.val_before_train={before}", f"++trainer.test_freq={every}")
    assert first_validation(configuration) == expected


def test_a_job_validates_first_by_default() -> None:
    (configuration,) = configured("++trainer.test_freq=-1")
    assert first_validation(configuration) == "first batch"


def test_nothing_is_known_of_a_job_without_configuration() -> None:
    assert first_validation(Unknown("not composed")) is None
