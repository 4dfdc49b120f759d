"""Comparison with judgement: breaks come first with their cause, and a machine equals itself."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fleets import dead, node, numbered, with_value, with_version
from support.machine_facts import MACHINES as MACHINES_FOLDER
from support.machine_facts import at, edited, healthy_node, known, machine
from support.machine_faults import FAULTS, Fault
from support.schemas import validate

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.gpu.gpus import Gpus
from verl_doctor.toolkit.collectors.host.limits import HostLimits, Limit
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.host.shared_memory import SharedMemory
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.commands.compare.render import markdown_lines, text_lines
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.comparison.cause import Key, key_of
from verl_doctor.toolkit.comparison.document import document
from verl_doctor.toolkit.comparison.judge import Comparison, compared
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.factsfile import NotHeld
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Absent, Broken
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.rule import Evidence, Finding, Subject, SubjectKind
from verl_doctor.toolkit.snapshot import snapshot
from verl_doctor.toolkit.snapshot.nodes import FoldedNodes
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.target import Target

MACHINES = ("h200-with-job", "head-node-of-two", "laptop", "closed-container", "h200-two-gpus")


def run() -> Session:
    target = Target(Path(sys.executable), chosen_by="--python")
    return Session(Machine(), target, Config(), known(), Selection())


def between(old: Mapping[type, Any], new: Mapping[type, Any]) -> Comparison:
    return compared(Snapshot(old), Snapshot(new), run())


def fleet(*answers: Any) -> Snapshot:
    nodes = FoldedNodes()
    for answer in answers:
        nodes.add(answer)
    return Snapshot(machine("head-node-of-two"), machine="head", nodes=nodes)


@pytest.mark.parametrize("name", MACHINES)
def test_machine_equals_itself(name: str) -> None:
    found = between(machine(name), machine(name))
    assert (found.differences, found.verdict, found.exit_code) == ((), "equal", 0)


@pytest.mark.parametrize(("old", "new"), list(zip(MACHINES, (*MACHINES[1:], MACHINES[0]), strict=True)))
def test_any_two_machines_can_be_compared(old: str, new: str) -> None:
    found = between(machine(old), machine(new))
    validate(json.loads(json.dumps(document(found))), schema_text("compare"))
    lines = _text(found)
    assert len(lines) <= 20
    assert all(len(line.plain) <= 80 or line.plain.startswith("    ") for line in lines)
    assert len(list(text_lines(found, None, every=False))) <= 20
    assert "".join(markdown_lines(found, every=True))
    assert found.verdict == ("equal" if old == new else "matters")


def test_no_line_of_a_comparison_is_cut() -> None:
    found = between(healthy_node(), machine("laptop"))
    assert found.of("matters")
    old = Snapshot({}, path=f"/a/{'long/' * 20}old.json", machine="node-1", taken="2026-01-01T00:00:00Z")
    found = replace(found, old=old)
    lines = [line.plain for line in _text(found)]
    assert len(lines) <= 20
    assert "old.json" in "".join(lines)
    assert [line for line in lines if line.endswith("...")] == []


def _text(found: Comparison) -> list[Any]:
    return list(text_lines(found, 80, every=False))


def distribution(name: str, version: str) -> Callable[[Packages], Packages]:
    def edit(packages: Packages) -> Packages:
        return replace(
            packages,
            distributions=tuple(
                replace(difference, version=version) if difference.name == name else difference
                for difference in packages.distributions
            ),
        )

    return edit


def test_fluctuating_values_are_noise() -> None:
    facts = machine("h200-with-job")
    later = edited(
        facts,
        {
            HostMemory: at("available", 1 + facts[HostMemory].available),
            Gpus: at("devices.0.temperature", 41),
            Variables: at("values.HOSTNAME", "another"),
            HostLimits: at("tasks", 400),
        },
    )
    found = between(facts, later)
    assert (found.verdict, found.exit_code) == ("equal", 0)
    assert {difference.subject for difference in found.differences} == {
        "HostMemory",
        "Gpus",
        "HOSTNAME",
        "HostLimits",
    }


def test_packages_are_listed_in_the_order_of_the_stack() -> None:
    old, new = machine("h200-with-job"), machine("head-node-of-two")
    found = [
        difference.subject for difference in between(old, new).of("matters") if difference.kind == "package"
    ]
    assert found[:3] == ["vllm", "torch", "transformers"]


def test_new_warning_is_shown_with_its_cause_and_breaks_nothing() -> None:
    healthy = healthy_node()
    sick = edited(healthy, {HostLimits: at("shell.files", Limit(128, 128))})
    found = between(healthy, sick)
    (broken,) = found.of("matters")
    assert (broken.kind, broken.subject, broken.old, broken.new) == ("limit", "open files", "20000", "128")
    assert broken.codes == ("HOST103",)
    assert (found.verdict, found.exit_code, found.of("breaks")) == ("matters", 1, ())


def test_new_error_is_a_break_shown_with_its_cause() -> None:
    fault = next(fault for fault in FAULTS if fault.code == "CUDA102")
    found = between(fault.node(), edited(fault.node(), fault.edits))
    (broken,) = found.of("breaks")
    assert (broken.kind, broken.subject) == CAUSES["CUDA102"]
    assert "CUDA102" in broken.codes
    assert (found.verdict, found.exit_code) == ("breaks", 1)


def test_finding_that_disappeared_is_listed_as_gone() -> None:
    healthy = healthy_node()
    sick = edited(healthy, {HostLimits: at("shell.files", Limit(128, 128))})
    found = between(sick, healthy)
    assert [code for code, _ in found.gone] == ["HOST103"]
    assert not found.of("breaks")


def test_increased_limit_is_not_a_break() -> None:
    facts = machine("h200-with-job")
    more = edited(facts, {SharedMemory: at("size", 2 * facts[SharedMemory].size)})
    assert between(facts, more).verdict == "equal"
    assert [difference.subject for difference in between(more, facts).of("matters")] == ["/dev/shm"]


def test_unread_variable_is_noise_and_a_read_variable_is_not() -> None:
    facts = machine("h200-with-job")

    def without(name: str) -> Mapping[type, Any]:
        def edit(fact: Any) -> Any:
            return replace(fact, values={key: value for key, value in fact.values.items() if key != name})

        return edited(facts, {Variables: edit, JobVariables: edit})

    assert between(facts, without("NCCL_VERSION")).verdict == "equal"
    (lost,) = between(facts, without("TORCH_CUDA_ARCH_LIST")).of("matters")
    assert (lost.subject, lost.old, lost.new) == ("TORCH_CUDA_ARCH_LIST", "9.0a", "")
    assert lost.next == "export TORCH_CUDA_ARCH_LIST=9.0a"


def test_configuration_keys_are_compared_except_names_and_paths() -> None:
    facts = machine("h200-with-job")
    other = edited(
        facts,
        {
            Configuration: lambda one: replace(
                one,
                after={
                    **one.after,
                    "trainer": {**one.after["trainer"], "experiment_name": "x", "nnodes": 3},
                },
            )
        },
    )
    (changed,) = between(facts, other).of("matters")
    assert (changed.subject, changed.old, changed.new) == ("trainer.nnodes", "1", "3")
    assert changed.next == "add trainer.nnodes=1 to the launch command"


def test_missing_fact_is_not_reported_as_fixed() -> None:
    healthy = healthy_node()
    sick = edited(healthy, {HostLimits: at("shell.files", Limit(128, 128))})
    found = between(sick, {**healthy, HostLimits: NotHeld("new.json does not contain the fact HostLimits")})
    assert (found.gone, found.verdict) == ((), "equal")
    assert found.not_compared == ("the new side lacks HostLimits",)


def test_keys_are_not_reported_as_lost_without_a_launch_script() -> None:
    facts = machine("h200-with-job")
    without = {**facts, Configuration: Absent("no launch script"), Launch: Absent("no launch script")}
    found = between(facts, without)
    assert not [difference for difference in found.differences if difference.kind == "configuration"]
    assert "the new side was examined without a launch script" in found.not_compared


def test_fact_unreadable_on_one_side_is_reported() -> None:
    facts = machine("h200-with-job")
    found = between(facts, {**facts, Gpus: Broken("NVML hung")})
    assert (found.verdict, found.exit_code) == ("could_not_compare", 3)
    assert found.lost == ("the new side could not read Gpus",)
    assert any("NVML hung" in sentence for sentence in found.not_compared)


@pytest.mark.slow
def test_nodes_are_compared_with_the_usual_one_and_folded() -> None:
    old = fleet(*(node(name) for name in numbered(4)))
    new = fleet(
        *(node(name) for name in numbered(6, 101)),
        *(node(name, with_version("vllm", "0.10.2")) for name in numbered(3, 201)),
        dead("node00301"),
    )
    found = compared(old, new, run())
    (vllm,) = [
        difference
        for difference in found.differences
        if (difference.kind, difference.subject) == ("package", "vllm")
    ]
    assert (vllm.old, vllm.new, vllm.nodes) == ("0.24.0", "0.10.2", "node[00201-00203]")
    assert [sentence.partition(" (")[0] for sentence in found.lost] == [
        "1 of the new nodes did not respond: node00301"
    ]
    assert all(difference.weight == "noise" or difference is vllm for difference in found.differences)


@pytest.mark.slow
def test_previously_odd_node_is_compared_with_itself() -> None:
    odd = node("node00002", with_value("HostLimits", "shell.files.soft", 4096))
    old = fleet(node("node00001"), odd, node("node00003"))
    assert compared(old, old, run()).verdict == "equal"
    others = fleet(node("node00001"), node("node00002"), node("node00003"))
    (raised,) = [
        difference
        for difference in compared(old, others, run()).differences
        if difference.subject == "open files"
    ]
    assert (raised.old, raised.new, raised.nodes, raised.weight) == ("4096", "20000", "node00002", "noise")


@pytest.mark.slow
def test_finding_on_one_node_is_joined_to_its_difference() -> None:
    old = fleet(*(node(name) for name in numbered(3)))
    sick = node("node00002", with_value("HostLimits", "shell.files", {"soft": 128, "hard": 128}))
    found = compared(old, fleet(node("node00001"), sick, node("node00003")), run())
    (reported,) = [difference for difference in found.differences if difference.codes]
    assert (reported.subject, reported.nodes) == ("open files", "node00002")
    assert reported.codes == ("HOST103", "HOST130")


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_break_is_reported_with_its_rule(fault: Fault) -> None:
    """Each fault of the recorded machines; in the reverse direction it is listed as gone."""
    healthy, sick = fault.node(), edited(fault.node(), fault.edits)
    found = between(healthy, sick)
    difference, *_ = [difference for difference in found.differences if fault.code in difference.codes]
    assert difference.weight in {"breaks", "matters"}
    assert found.exit_code == 1
    assert fault.code in {code for code, _ in between(sick, healthy).gone} or difference.weight == "matters"


@pytest.mark.slow
def test_folders_of_facts_files_are_compared_node_by_node(tmp_path: Path) -> None:
    for folder, limit in (("old", "20000"), ("new", "128")):
        (tmp_path / folder).mkdir()
        text = (MACHINES_FOLDER / "h200-with-job.json").read_text()
        for name in ("node1", "node2"):
            small = text.replace('"soft": 20000, "hard": 20000', f'"soft": {limit}, "hard": {limit}')
            (tmp_path / folder / f"{name}.json").write_text(text if name == "node1" else small)
    old, new = (snapshot.read(tmp_path / name, known().collectors) for name in ("old", "new"))
    (reported,) = [difference for difference in compared(old, new, run()).differences if difference.codes]
    assert (reported.subject, reported.nodes) == ("open files", "node2")
    assert compared(new, new, run()).verdict == "equal"


def test_file_without_facts_in_a_folder_is_named(tmp_path: Path) -> None:
    for folder, names in (("old", ("a", "b")), ("new", ("a",))):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.json").write_bytes((MACHINES_FOLDER / "laptop.json").read_bytes())
    (tmp_path / "old" / "package.json").write_text('{"name": "x"}')
    sides = [snapshot.read(tmp_path / folder, known().collectors) for folder in ("old", "new")]
    found = compared(*sides, run())
    assert (found.verdict, found.exit_code, found.gone) == ("could_not_compare", 3, ())
    (lost,) = found.lost
    assert lost.startswith("1 of the old nodes did not respond: package (its facts file is not a facts file")


@pytest.mark.slow
def test_folder_of_nodes_can_be_compared_with_a_machine(tmp_path: Path) -> None:
    text = (MACHINES_FOLDER / "laptop.json").read_bytes()
    (tmp_path / "nodes").mkdir()
    for path in (tmp_path / "nodes" / "a.json", tmp_path / "one.json"):
        path.write_bytes(text)
    sides = [snapshot.read(path, known().collectors) for path in (tmp_path / "nodes", tmp_path / "one.json")]
    for old, new in (sides, sides[::-1]):
        found = compared(old, new, run())
        assert (found.verdict, found.not_compared) == ("equal", ())


def test_snapshots_with_different_schemas_are_not_called_equal() -> None:
    facts = machine("laptop")
    found = compared(Snapshot(facts), Snapshot(facts, schema=99, path="new.json"), run())
    assert (found.verdict, found.exit_code) == ("could_not_compare", 3)
    assert found.lost[0].startswith("new.json has schema version 99, this verl-doctor reads 1")


CAUSES = {
    "HOST101": ("capacity", "CPUs"),
    "HOST103": ("limit", "open files"),
    "HOST105": ("capacity", "/dev/shm"),
    "HOST109": ("file system", "of Ray's sessions"),
    "CUDA102": ("driver", "libcuda that is found first"),
    "CUDA146": ("GPUs", "compute mode"),
    "NET109": ("limit", "locked memory"),
}


@pytest.mark.parametrize("code", CAUSES)
def test_cause_of_a_finding_is_shown(code: str) -> None:
    fault = next(fault for fault in FAULTS if fault.code == code)
    found = between(fault.node(), edited(fault.node(), fault.edits))
    (difference,) = [difference for difference in found.differences if code in difference.codes]
    assert (difference.kind, difference.subject) == CAUSES[code]


def test_difference_that_a_rule_reports_is_its_cause() -> None:
    """Both are read from one fact."""
    healthy = healthy_node()
    few = at("shell.files", Limit(128, 128))
    cpus = at("shell.allowed", 12)
    sick = edited(edited(healthy, {HostLimits: few}), {HostLimits: cpus})
    difference = {
        difference.subject: difference.codes
        for difference in between(healthy, sick).differences
        if difference.kind != "fact"
    }
    assert difference == {"open files": ("HOST103",), "CPUs": ()}


def test_fault_is_matched_by_subject_and_not_by_wording() -> None:
    def key(name: str, kind: SubjectKind = "variable", message: str = "", detail: str = "") -> Key:
        return key_of("ENV101", Finding(message, Evidence(""), subject=Subject(kind, name, detail)))

    assert key("HF_HOME", message="it is not read") == key("HF_HOME", message="nobody reads it")
    assert key("HF_HOME") != key("HF_TOKEN")
    assert key("vllm.v1.engine.A", "symbol") != key("vllm.v1.engine.B", "symbol")
    assert key("/home/me/.cache", "folder", detail="models") == key("/users/me/c", "folder", detail="models")
    assert key("/home/me/.cache", "folder", detail="models") != key(
        "/home/me/.cache", "folder", detail="code"
    )
    assert key("node1", "node") == key("worker-a", "node")
    assert key("torch", "package", detail="2.9.1") == key("torch", "package", detail="2.10.0+cu130")
    words = Finding("/a/b has 3 files", Evidence(""))
    assert key_of("X", words) == key_of("X", Finding("/c has 17 files", Evidence("")))
