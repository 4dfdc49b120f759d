"""Comparing snapshots: only differences are reported."""

from __future__ import annotations

from dataclasses import replace

from support.machine_facts import machine

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.markers import MarkedLine, Markers
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.network.network import Interface, Network
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.comparison.comparison import differences
from verl_doctor.toolkit.patchsets.patchset import Patch
from verl_doctor.toolkit.snapshot.snapshot import Snapshot


def test_lost_variable_is_reported() -> None:
    facts = machine("h200-with-job")
    variables = facts[Variables]
    old = {**facts, Variables: replace(variables, values={**variables.values, "NCCL_IB_HCA": "mlx5_0"})}
    (lost,) = differences(Snapshot(old), Snapshot(facts))
    assert (lost.kind, lost.subject, lost.old, lost.new) == ("variable", "NCCL_IB_HCA", "mlx5_0", "")


def test_variable_set_by_the_job_overrides_that_of_the_shell() -> None:
    """verl sets NCCL_DEBUG for its workers, whatever the shell's value."""
    facts = machine("h200-with-job")
    variables = facts[Variables]
    old = {**facts, Variables: replace(variables, values={**variables.values, "NCCL_DEBUG": "INFO"})}
    (shell,) = differences(Snapshot(old), Snapshot(facts))
    assert (shell.subject, shell.weight) == ("NCCL_DEBUG", "noise")


def test_environment_prefix_in_paths_is_not_a_difference() -> None:
    facts = machine("laptop")
    moved = replace(facts[Interpreter], prefix="/data/ann/env")

    def seen(prefix: str) -> dict[type, object]:
        values = {"LD_LIBRARY_PATH": f"{prefix}/lib:/usr/lib"}
        return {
            **facts,
            Interpreter: replace(moved, prefix=prefix),
            Variables: Variables(values),
            JobVariables: JobVariables(values),
        }

    found = differences(Snapshot(seen("/data/ann/env")), Snapshot(seen("/scratch/bob/venv")))
    assert {difference.kind for difference in found} == {"fact"}


PATCH = Patch("workers/a.py", "f", ("abc",), (), "old()", "new()", "Uky", 7)


def test_missing_patch_names_the_command_that_restores_it() -> None:
    facts = machine("laptop")
    old = Snapshot(facts, patches=(PATCH,), path="old.json")
    (lost,) = differences(old, Snapshot(facts, patches=()))
    assert (lost.kind, lost.subject) == ("patch", "Uky at workers/a.py:7 in f")
    assert (lost.old, lost.new) == ("in place", "missing")
    assert lost.next == "verl-doctor patches apply old.json --apply"
    assert differences(old, Snapshot(facts, patches=(replace(PATCH, line=99),))) == []


def test_marked_lines_in_facts_files_are_counted() -> None:
    facts = machine("laptop")
    lines = tuple(MarkedLine("/env/verl/a.py", number, "Uky") for number in (3, 4))
    old, new = (Snapshot({**facts, Markers: Markers("/env/verl", marked)}) for marked in (lines, lines[:1]))
    (lost,) = differences(old, new)
    assert (lost.subject, lost.old, lost.new) == ("Uky in a.py", "2 marked lines", "1 marked line")


def test_temporary_container_interfaces_are_not_a_difference() -> None:
    facts = machine("h200-with-job")
    network = facts[Network]
    veth = Interface("veth1a2b", "veth", up=True, addresses=("fe80::42:acff:fe11:2",))
    pod = Interface("eth9", "veth", up=True, addresses=("10.244.3.9",))

    def seen(*more: Interface) -> Snapshot:
        return Snapshot({**facts, Network: replace(network, interfaces=(*network.interfaces, *more))})

    assert "network" not in {difference.kind for difference in differences(seen(), seen(veth))}
    (other,) = (difference for difference in differences(seen(), seen(pod)) if difference.kind == "network")
    assert "eth9" in other.new
