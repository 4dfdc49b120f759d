"""Fixes that take a variable from the job, or turn one off."""

from __future__ import annotations

from verl_doctor.checks.gpus.visible_devices_of_amd import _VERL, visible_devices_of_amd
from verl_doctor.checks.network.symmetric_memory_in_workers import _BAD, symmetric_memory_in_workers
from verl_doctor.checks.shared.effective import own, row
from verl_doctor.checks.shared.gpus import node
from verl_doctor.patches.variables.no_foreign_devices import no_foreign_devices
from verl_doctor.patches.variables.no_symmetric_memory import no_symmetric_memory
from verl_doctor.toolkit.change import Refusal, SetVariable
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.testing import run_check


def test_amd_variable_is_unset_only_with_nvidia_gpus() -> None:
    both = own(
        row("HIP_VISIBLE_DEVICES", "0,1", "0,1", "0,1", "the driver"),
        row("ROCR_VISIBLE_DEVICES", "0,1", "0,1", "0,1", "the driver"),
    )
    findings = run_check(visible_devices_of_amd, node(), _VERL, both).findings
    planned = [no_foreign_devices.plan(finding, node()) for finding in findings]
    changes = [change for plan in planned if isinstance(plan, list) for change in plan]
    assert [(c.name, c.value, c.node_only) for c in changes if isinstance(c, SetVariable)] == [
        ("HIP_VISIBLE_DEVICES", None, True),
        ("ROCR_VISIBLE_DEVICES", None, True),
    ]
    assert isinstance(no_foreign_devices.plan(findings[0], Gpus()), Refusal)


def test_symmetric_memory_is_turned_off() -> None:
    no_job = (Configuration, Unknown("no launch script"))
    (finding,) = run_check(symmetric_memory_in_workers, _BAD, own(), node(), no_job).findings
    assert finding.fix == no_symmetric_memory.id
    (change,) = no_symmetric_memory.plan(finding)
    assert isinstance(change, SetVariable)
    assert (change.name, change.value, change.node_only) == ("VLLM_ALLREDUCE_USE_SYMM_MEM", "0", False)
