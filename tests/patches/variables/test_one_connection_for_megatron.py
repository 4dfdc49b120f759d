"""The fix that gives Megatron's workers one connection to each device."""

from __future__ import annotations

from verl_doctor.checks.shared.effective import own
from verl_doctor.checks.variables.megatron_lacks_max_connections import megatron_lacks_max_connections
from verl_doctor.patches.variables.one_connection_for_megatron import one_connection_for_megatron
from verl_doctor.toolkit.change import SetVariable
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.testing import run_check

TREE = {"actor_rollout_ref": {"actor": {"strategy": "megatron"}}}
MEGATRON = Configuration("main_ppo", "/env/verl/trainer/config", "ppo_trainer", (), TREE, TREE)


def test_every_node_gets_the_value_required_by_megatron() -> None:
    result = run_check(megatron_lacks_max_connections, own(), MEGATRON, (Gpus, Unknown("no NVML")))
    (finding,) = result.findings
    assert finding.fix == one_connection_for_megatron.id
    (change,) = one_connection_for_megatron.plan(finding)
    assert isinstance(change, SetVariable)
    assert (change.name, change.value, change.node_only) == ("CUDA_DEVICE_MAX_CONNECTIONS", "1", False)
