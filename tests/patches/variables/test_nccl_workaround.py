"""The fix that sets the variables proven necessary for NCCL."""

from __future__ import annotations

from verl_doctor.checks.network.nccl_fails import nccl_fails
from verl_doctor.patches.variables.nccl_workaround import nccl_workaround
from verl_doctor.toolkit.change import Refusal, SetVariable
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.cuda.collective import REMEDIES, Collective
from verl_doctor.toolkit.collectors.cuda.collective_trial import Trial
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.testing import run_check

NO_SCRIPT = (Launch, Unknown("no launch script"))
NO_JOB = (Configuration, Unknown("no launch script"))
HANGS = Trial(stuck="the first all-reduce", seconds=60.0)


def test_proven_variables_are_set() -> None:
    proof = Collective((0, 1), "2.28.9", (HANGS, HANGS, HANGS, Trial(REMEDIES[-1], works=True, bandwidth=3)))
    (finding,) = run_check(nccl_fails, proof, Variables(), NO_SCRIPT, NO_JOB).findings
    assert finding.fix == nccl_workaround.id
    changes = nccl_workaround.plan(finding, proof)
    assert isinstance(changes, list)
    assert [
        (change.name, change.value, change.node_only) for change in changes if isinstance(change, SetVariable)
    ] == [
        ("NCCL_P2P_DISABLE", "1", True),
        ("NCCL_SHM_DISABLE", "1", True),
    ]
    assert all(isinstance(change, SetVariable) and change.why and change.until for change in changes)


def test_unproven_variables_are_not_set() -> None:
    proof = Collective((0, 1), "2.28.9", (HANGS,) * 4)
    (finding,) = run_check(nccl_fails, proof, Variables(), NO_SCRIPT, NO_JOB).findings
    assert finding.fix is None
    assert isinstance(nccl_workaround.plan(finding, proof), Refusal)


def test_each_remedy_has_a_reason() -> None:
    for remedy in REMEDIES:
        proof = Collective((0, 1), "2.28.9", (HANGS, Trial(remedy, works=True)))
        (finding,) = run_check(nccl_fails, proof, Variables(), NO_SCRIPT, NO_JOB).findings
        assert isinstance(nccl_workaround.plan(finding, proof), list)
