"""CFG101: whether the correction of a misspelt key changes the training."""

from __future__ import annotations

import pytest

from verl_doctor.checks.configuration.config_key_unknown import config_key_unknown
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.testing import run_check


@pytest.mark.parametrize(
    ("other", "changes_training"),
    [((), False), (("trainer.n_gpus_per_node=8",), False), (("trainer.n_gpus_per_node=4",), True)],
)
def test_correcting_a_key_that_is_set_twice_may_change_its_value(
    other: tuple[str, ...], changes_training: bool
) -> None:
    facts = configured(*other, "trainer.n_gpu_per_node=8")
    (finding,) = run_check(config_key_unknown, *facts).findings
    assert finding.correction is not None
    assert bool(finding.correction.effect) is changes_training
