"""Many nodes judged as one: what is equal is said once, what is odd is named, and the order of answers does not matter."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from fleets import Edit, dead, node, numbered, with_value, with_version
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_facts import known
from trying import cases

from verl_doctor.toolkit import fleet, render
from verl_doctor.toolkit.config import Config
from verl_doctor.toolkit.fleet_names import expand
from verl_doctor.toolkit.judge import Selection
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.node_answer import NodeAnswer
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.target import Target

# What many rules need is done: a folder for Ray that has room.
SESSION = Session(
    Machine(), Target(Path("/usr/bin/python3"), chosen_by="--python"), Config(), known(), Selection()
)


def judged(answers: Iterable[NodeAnswer]) -> Report:
    """The report, less what the clock says."""
    report = fleet.judge_nodes(answers, SESSION, "a test")
    return replace(report, seconds=0, results=tuple(replace(one, seconds=0) for one in report.results))


def said(report: Report) -> list[tuple[str, str, str]]:
    """Code, message and nodes of all that is said."""
    return [(result.code, one.message, one.node or "") for result, one in report.findings()]


def text(report: Report, form: str = "text") -> str:
    file = StringIO()
    render._write(report, form, file, verbose=False)
    return file.getvalue()


HEALTHY = list(map(node, numbered(8)))


def test_nodes_that_are_well_are_one_number() -> None:
    report = judged(HEALTHY)
    assert report.nodes is not None
    assert (report.nodes.answered, report.nodes.agree, report.nodes.lost) == (8, 8, 0)
    assert {code for code, _, _ in said(report)} == {"CUDA130"}, "the hint that the recorded machine gets"
    assert report.exit_code() == 0


@pytest.mark.parametrize("form", ["text", "markdown", "json", "junit"])
def test_more_nodes_that_are_well_make_no_longer_report(form: str) -> None:
    few, many = (text(judged(map(node, numbered(count))), form) for count in (20, 80))
    assert len(few) == len(many)


def test_nodes_that_did_not_answer_are_named_by_the_reason_and_the_verdict_is_open() -> None:
    lost = [dead(name) for name in ("node00101", "node00102", "node00107")]
    report = judged([*HEALTHY, *lost, dead("node00103", "its raylet is gone")])
    assert report.verdict == "could_not_check"
    assert report.exit_code() == 3
    assert "4 did not answer" in text(report)
    assert "no answer from node[00101-00102,00107]: it did not tell its facts within 20 s" in text(report)
    assert "no answer from node00103: its raylet is gone" in text(report)


def test_a_failure_outweighs_a_node_that_did_not_answer() -> None:
    report = judged([*HEALTHY, dead("node00101"), node("node00102", with_version("vllm", "0.10.2"))])
    assert report.exit_code() == 1


def test_no_answer_at_all_is_no_verdict() -> None:
    assert judged([]).exit_code() == 3
    assert judged([dead("node1")]).exit_code() == 3


def test_a_node_that_answers_after_all_has_answered() -> None:
    report = judged([dead("node00001"), *HEALTHY, dead("node00001"), HEALTHY[0]])
    assert report.nodes is not None
    assert (report.nodes.answered, report.nodes.lost) == (8, 0)


def test_a_damaged_fact_is_that_nodes_own_trouble() -> None:
    hurt = node("node00100")
    hurt = replace(hurt, facts={**hurt.facts, "HostMemory": '{"is": {"total": "much"}}'})
    report = judged([*HEALTHY, hurt])
    reasons = {result.reason for result in report.results if "damaged" in result.reason}
    assert reasons
    assert all(reason.endswith("on node00100") for reason in reasons)


def test_what_differs_in_amount_is_one_finding_with_the_range() -> None:
    gib = 2**30
    full = [
        node(f"node{number:05}", with_value("Folders", "folders.0.free", amount))
        for number, amount in ((101, gib), (102, 2 * gib), (103, gib * 3 // 2))
    ]
    (finding,) = [one for one in said(judged([*HEALTHY, *full])) if one[0] == "HOST106"]
    assert "1.0 GiB to 2.0 GiB" in finding[1]
    assert finding[2] == "node[00101-00103]"


def test_what_one_node_alone_has_is_said_in_its_own_words() -> None:
    full = node("node00101", with_value("Folders", "folders.0.free", 2**30))
    (finding,) = [one for one in said(judged([*HEALTHY, full])) if one[0] == "HOST106"]
    assert "1.0 GiB left" in finding[1]


DRIFTS: tuple[tuple[str, Edit], ...] = (("PKG120", with_version("vllm", "0.10.2")),)


@settings(max_examples=cases(8), deadline=None)
@given(
    st.integers(3, 12),
    st.data(),
    st.sampled_from(DRIFTS),
)
def test_a_minority_that_drifts_is_named_and_nobody_else(
    count: int, data: st.DataObject, drift: tuple[str, Edit]
) -> None:
    code, edit = drift
    names = list(numbered(count))
    odd = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=(count - 1) // 2))
    answers = [node(name, *([edit] if name in odd else [])) for name in names]
    random.Random(count).shuffle(answers)
    (finding,) = [one for one in said(judged(answers)) if one[0] == code]
    assert set(expand(finding[2])) == odd


def test_the_order_of_the_answers_does_not_matter() -> None:
    answers = [
        *HEALTHY,
        *(dead(name) for name in ("node00200", "node00201")),
        *(node(f"node{number:05}", with_version("torch", "2.0")) for number in range(300, 303)),
        *(
            node(f"node{number:05}", with_value("Folders", "folders.0.free", number))
            for number in range(400, 412)
        ),
        node("head", machine="head-node-of-two"),
    ]
    reports = []
    for seed in range(3):
        random.Random(seed).shuffle(answers)
        reports.append(text(judged(answers), "json"))
    assert len(set(reports)) == 1


def test_two_against_two_is_no_majority() -> None:
    answers = [*HEALTHY[:2], *(node(f"node{n}", with_version("vllm", "0.10.2")) for n in (7, 8))]
    report = judged(answers)
    (finding,) = [one for one in said(report) if one[0] == "PKG120"]
    assert "there is no majority" in finding[1]
    assert report.nodes is not None
    assert report.nodes.agree == 0


def test_a_head_without_gpus_is_a_kind_of_its_own_and_no_drift() -> None:
    def without_gpus(facts: dict[str, Any]) -> None:
        facts["Gpus"] = {}

    def lacks_triton(facts: dict[str, Any]) -> None:
        packages = facts["Packages"]
        packages["distributions"] = [one for one in packages["distributions"] if one["name"] != "triton"]

    head = node("head", without_gpus, lacks_triton)
    head = replace(head, facts={**head.facts, "Gpus": '{"absent": "there is no NVIDIA GPU here"}'})
    report = judged([*HEALTHY, head])
    assert report.nodes is not None
    assert [(kind.what, kind.count, kind.nodes) for kind in report.nodes.kinds] == [
        ("NVIDIA H200", 8, ""),
        ("", 1, "head"),
    ]
    assert report.nodes.agree == 9


def test_what_was_found_so_far_can_be_said_at_any_time() -> None:
    gathering = fleet.Gathering(SESSION)
    lines = []
    for answer in (HEALTHY[0], dead("node9"), node("node8", with_value("Folders", "folders.0.free", 0))):
        gathering.add(answer)
        lines.append(gathering.so_far())
    assert lines[0] == "1 node answered"
    assert lines[1] == "1 node answered, 1 did not"
    assert lines[2] == "2 nodes answered, 1 did not, HOST106 fails on 1"
