"""Where a value of the wrong type ends the job."""

from __future__ import annotations

from verl_doctor.checks.configuration.config_value_of_wrong_type import config_value_of_wrong_type
from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration.config_classes import ConfigClasses
from verl_doctor.toolkit.testing import run_check

ALPHA = "actor_rollout_ref.model.lora_alpha"


def test_adapter_without_its_alpha_fails_in_the_workers_before_the_server_refuses_it() -> None:
    classes = ConfigClasses(converted={ALPHA: ("int",)}, calculated={ALPHA: "/env/verl/workers/engine.py:9"})
    (finding,) = run_check(config_value_of_wrong_type, *configured(f"+{ALPHA}=null"), classes).findings
    assert finding.phase == "workers"
