"""Comparing snapshots: what differs is told, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machine_facts import machine

from verl_doctor.toolkit.compare import differences
from verl_doctor.toolkit.fact_environment import Variables
from verl_doctor.toolkit.snapshot import Snapshot


@pytest.mark.parametrize("name", ["h200-with-job", "head-node-of-two", "laptop", "closed-container"])
def test_a_machine_does_not_differ_from_itself(name: str) -> None:
    assert differences(Snapshot(machine(name)), Snapshot(machine(name))) == []


def test_a_variable_that_is_lost_is_told() -> None:
    facts = machine("h200-with-job")
    variables = facts[Variables]
    old = {**facts, Variables: replace(variables, values={**variables.values, "NCCL_IB_HCA": "mlx5_0"})}
    (lost,) = differences(Snapshot(old), Snapshot(facts))
    assert (lost.kind, lost.subject, lost.old, lost.new) == ("variable", "NCCL_IB_HCA", "mlx5_0", "")
