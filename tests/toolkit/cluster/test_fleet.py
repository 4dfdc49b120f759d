"""Many nodes judged together: equal findings are merged, odd nodes are named, and the order of responses does not matter."""

from __future__ import annotations

import copy
import functools
import json
import random
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fleets import Edit, dead, node, numbered, texts, with_value, with_version
from support.machine_facts import known
from support.schemas import validate
from support.trying import cases

from verl_doctor.toolkit.cluster import fleet
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.commands.explain.schemas import schema_text
from verl_doctor.toolkit.console import view
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.render import text as render_text
from verl_doctor.toolkit.render.render import ReportAnswer
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.rule import Finding
from verl_doctor.toolkit.system.node_names import expand
from verl_doctor.toolkit.target import Target, UsageError

# What many rules need is done: a folder for Ray that has room.
SESSION = Session(
    Machine(), Target(Path("/usr/bin/python3"), chosen_by="--python"), Config(), known(), Selection()
)


def judged(answers: Iterable[NodeResponse]) -> Report:
    """The report without timings."""
    report = fleet.judge_nodes(answers, SESSION, "a test")
    return replace(report, seconds=0, results=tuple(replace(result, seconds=0) for result in report.results))


def findings(report: Report) -> list[tuple[str, Finding]]:
    return [(result.code, finding) for result, finding in report.findings()]


def reported(report: Report) -> list[tuple[str, str, str]]:
    """Code, message and nodes of all findings."""
    return [(result.code, one.message, one.node or "") for result, one in report.findings()]


def text(report: Report, form: str = "text") -> str:
    file = StringIO()
    view.write(ReportAnswer(report), form, file)
    return file.getvalue()


HEALTHY = list(map(node, numbered(8)))


def test_healthy_nodes_are_reported_as_one_number() -> None:
    report = judged(HEALTHY)
    assert report.nodes is not None
    assert (report.nodes.answered, report.nodes.agree, report.nodes.lost) == (8, 8, 0)
    assert {code for code, _, _ in reported(report)} == {"CUDA130"}, "the hint that the recorded machine gets"
    assert report.exit_code() == 0


@functools.cache
def well(count: int) -> Report:
    return judged(map(node, numbered(count)))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["text", "markdown", "json", "junit"])
def test_more_healthy_nodes_do_not_lengthen_the_report(form: str) -> None:
    assert len(text(well(10), form)) == len(text(well(40), form))


@pytest.mark.slow
def test_names_that_do_not_fold_do_not_lengthen_the_report() -> None:
    chance = random.Random(5)
    names = [f"worker-{chance.getrandbits(40):010x}" for _ in range(40)]
    few, many = judged(map(node, names[:10])), judged(map(node, names))
    assert len(text(few)) <= len(text(many)) < len(text(few)) + 200


def test_lost_nodes_are_listed_by_reason_and_leave_the_verdict_open() -> None:
    lost = [dead(name) for name in ("node00101", "node00102", "node00107")]
    report = judged([*HEALTHY, *lost, dead("node00103", "its raylet is gone")])
    assert report.verdict == "could_not_check"
    assert report.exit_code() == 3
    assert "4 did not respond" in text(report)
    assert "no response from node[00101-00102,00107]: it did not tell its facts within 20 s" in text(report)
    assert "no response from node00103: its raylet is gone" in text(report)


def test_failure_outweighs_a_lost_node() -> None:
    report = judged([*HEALTHY, dead("node00101"), node("node00102", with_version("vllm", "0.10.2"))])
    assert report.exit_code() == 1


@pytest.mark.parametrize("name", ["", "a,b", "a b", "x[1-9]", "\x1b[31mred", "\n"])
def test_unfoldable_name_still_counts_as_one_node(name: str) -> None:
    report = judged([*HEALTHY[:2], dead(name)])
    assert report.nodes is not None
    assert report.nodes.lost == 1
    assert "\x1b" not in text(report)


@pytest.mark.parametrize("entry", ["", "{", "[]", '{"is": {}}', '{"what": 1}', "[" * 9999, "null"])
def test_damaged_entry_does_not_abort_the_judgement(entry: str) -> None:
    hurt = replace(HEALTHY[2], facts=dict.fromkeys(HEALTHY[2].facts, entry))
    report = judged([*HEALTHY[:2], hurt])
    assert report.nodes is not None
    assert report.nodes.answered == 3


def test_no_response_at_all_gives_no_verdict() -> None:
    assert judged([]).exit_code() == 3
    assert judged([dead("node1")]).exit_code() == 3


def test_late_response_replaces_an_earlier_loss() -> None:
    report = judged([dead("node00001"), *HEALTHY, dead("node00001"), HEALTHY[0]])
    assert report.nodes is not None
    assert (report.nodes.answered, report.nodes.lost) == (8, 0)


def test_damaged_fact_affects_only_its_node() -> None:
    hurt = node("node00100")
    hurt = replace(hurt, facts={**hurt.facts, "HostMemory": '{"is": {"total": "much"}}'})
    report = judged([*HEALTHY, hurt])
    reasons = {result.reason for result in report.results if "damaged" in result.reason}
    assert reasons
    assert all(reason.endswith("on node00100") for reason in reasons)


def test_findings_that_differ_in_amount_are_merged_with_a_range() -> None:
    gib = 2**30
    full = [
        node(f"node{number:05}", with_value("Folders", "folders.0.free", amount))
        for number, amount in ((101, gib), (102, 2 * gib), (103, gib * 3 // 2))
    ]
    (finding,) = [finding for finding in reported(judged([*HEALTHY, *full])) if finding[0] == "HOST106"]
    assert "1.0 GiB to 2.0 GiB" in finding[1]
    assert finding[2] == "node[00101-00103]"


def test_finding_on_a_single_node_keeps_its_text() -> None:
    full = node("node00101", with_value("Folders", "folders.0.free", 2**30))
    (finding,) = [finding for finding in reported(judged([*HEALTHY, full])) if finding[0] == "HOST106"]
    assert "1.0 GiB left" in finding[1]


def job_file(**changed: Any) -> dict[str, Any]:
    file = {
        "path": "/models/q",
        "what": "model",
        "state": "there",
        "files": 12,
        "size": 15 * 2**30,
        "names": "ab12",
    }
    return {"files": [{**file, **changed}]}


def all_have(fact: str, value: Any) -> Edit:
    return lambda facts: facts.__setitem__(fact, copy.deepcopy(value))


RDMA = {
    "adapter": "mlx5_0",
    "number": 1,
    "state": "ACTIVE",
    "physical": "LinkUp",
    "link": "InfiniBand",
    "gids": [],
}
DRIFT = {
    "package": "vllm",
    "version": "0.24.0",
    "path": "/e/lib/python3.12/site-packages/vllm/envs.py",
    "links": 1,
}
DRIFT |= {"state": "changed", "sha256": "3f" * 32, "leads_to": "", "markers": [], "installer": "uv"}
# Rule, an edit for every node, and the fault on some.
DRIFTS: Mapping[str, tuple[Edit, Edit]] = {
    "PKG120": (with_version("vllm", "0.11.0"), with_version("vllm", "0.10.2")),
    "PKG121": (all_have("Records", {"packages": [], "drifts": []}), with_value("Records", "drifts", [DRIFT])),
    "RAY145": (with_version("ray", "2.49.0"), with_version("ray", "2.50.0")),
    "RAY146": (with_value("Interpreter", "version", "3.12.3"), with_value("Interpreter", "version", "3.12.11")),
    "CUDA160": (with_value("Gpus", "driver", "580.95.05"), with_value("Gpus", "driver", "550.54.14")),
    "CUDA161": (with_value("Gpus", "cuda", "13.0"), lambda facts: facts["Gpus"]["devices"].append(facts["Gpus"]["devices"][0])),
    "CUDA163": (with_value("Gpus", "cuda", "13.0"), with_value("Gpus", "devices.0.power_limit", 500)),
    "ENV130": (with_value("Variables", "values.NCCL_IB_HCA", "mlx5"), with_value("Variables", "values.NCCL_IB_HCA", "mlx4")),
    "HOST130": (with_value("HostLimits", "shell.files.soft", 20000), with_value("HostLimits", "shell.files.soft", 1024)),
    "HOST131": (all_have("JobFiles", job_file()), all_have("JobFiles", job_file(state="missing"))),
    "HOST132": (with_value("Folders", "folders.1.kind", "xfs"), with_value("Folders", "folders.1.kind", "overlay")),
    "HOST133": (with_value("HostMemory", "total", 2**41), with_value("HostMemory", "total", 2**41 * 9 // 10)),
    "NET120": (all_have("ClockOffset", {"ahead": 0.1, "within": 0.1}), all_have("ClockOffset", {"ahead": -61.5, "within": 0.1})),
    "NET121": (with_value("Network", "default", "bond0"), with_value("Network", "default", "eno1")),
    "NET122": (all_have("Rdma", {"ports": [RDMA]}), all_have("Rdma", {"ports": [{**RDMA, "state": "DOWN"}]})),
}  # fmt: skip


@pytest.mark.parametrize("code", DRIFTS)
def test_only_nodes_that_differ_are_named(code: str) -> None:
    usual, odd = DRIFTS[code]
    answers = [
        node(name, usual, *([odd] if name in {"node00002", "node00003"} else [])) for name in numbered(7)
    ]
    report = judged(answers)
    found = [(rule, one.node) for rule, one in findings(report) if rule in DRIFTS]
    assert found == [(code, "node[00002-00003]")]
    assert report.nodes is not None
    assert report.nodes.agree == 5


@pytest.mark.slow
@settings(max_examples=cases(3), deadline=None)
@given(st.integers(3, 12), st.data(), st.sampled_from(sorted(DRIFTS)))
def test_only_the_drifting_minority_is_named(count: int, data: st.DataObject, code: str) -> None:
    usual, drift = DRIFTS[code]
    names = list(numbered(count))
    odd = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=(count - 1) // 2))
    answers = [node(name, usual, *([drift] if name in odd else [])) for name in names]
    random.Random(count).shuffle(answers)
    (finding,) = [one for rule, one in findings(judged(answers)) if rule == code]
    assert set(expand(finding.node or "")) == odd


@pytest.mark.slow
def test_order_of_responses_does_not_matter() -> None:
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


def test_cluster_path_missing_on_one_node_is_reported() -> None:
    def places(state: str, files: int = 12) -> Edit:
        content = {
            "path": "/models/qwen",
            "what": "site",
            "state": state,
            "files": files,
            "names": str(files),
            "mount": "nfs4",
        }
        place = {"name": "model", "path": "/models/qwen", "shared": True, "content": content}
        return all_have("SitePlaces", {"places": [place], "named_in": "/home/me/verl-doctor.toml"})

    answers = [node(name, places("there")) for name in numbered(5)]
    answers += [node("node7", places("missing")), node("node8", places("there", files=9))]
    summary = {
        (code, nodes): message
        for code, message, nodes in reported(judged(answers))
        if code in ("SITE102", "HOST131")
    }
    assert "/models/qwen does not exist" in summary["SITE102", "node7"]
    assert "node7 has no /models/qwen, the other 6 have /models/qwen" in summary["HOST131", "node7"]
    assert "9 files" in summary["HOST131", "node8"]
    assert len(summary) == 3


def test_tie_is_not_a_majority() -> None:
    answers = [*HEALTHY[:2], *(node(f"node{n}", with_version("vllm", "0.10.2")) for n in (7, 8))]
    report = judged(answers)
    (finding,) = [finding for finding in reported(report) if finding[0] == "PKG120"]
    assert "there is no majority" in finding[1]
    assert report.nodes is not None
    assert report.nodes.agree == 0


def test_head_without_gpus_is_a_separate_kind_and_not_drift() -> None:
    def without_gpus(facts: dict[str, Any]) -> None:
        facts["Gpus"] = {}

    def lacks_triton(facts: dict[str, Any]) -> None:
        packages = facts["Packages"]
        packages["distributions"] = [
            distribution for distribution in packages["distributions"] if distribution["name"] != "triton"
        ]

    head = node("head", without_gpus, lacks_triton)
    head = replace(head, facts={**head.facts, "Gpus": '{"absent": "there is no NVIDIA GPU here"}'})
    report = judged([*HEALTHY, head])
    assert report.nodes is not None
    assert [(kind.what, kind.count, kind.nodes) for kind in report.nodes.kinds] == [
        ("NVIDIA H200", 8, ""),
        ("", 1, "head"),
    ]
    assert report.nodes.agree == 9


def test_partial_results_are_available_at_any_time() -> None:
    gathering = fleet.Gathering(SESSION)
    lines = []
    for answer in (HEALTHY[0], dead("node9"), node("node8", with_value("Folders", "folders.0.free", 0))):
        gathering.add(answer)
        lines.append(gathering.so_far())
    assert lines[0] == "1 node answered"
    assert lines[1] == "1 node answered, 1 did not"
    assert lines[2] == "2 nodes answered, 1 did not, HOST106 fails on 1"


@pytest.mark.slow
def test_report_of_many_nodes_matches_its_schema() -> None:
    schema = schema_text("report")
    report = judged([*HEALTHY, dead("node9"), node("node8", with_version("vllm", "0.10.2"))])
    reported = json.loads(text(report, "json"))
    validate(reported, schema)
    assert reported["nodes"] == {
        "answered": 9,
        "agree": 8,
        "lost": 1,
        "kinds": [{"what": "NVIDIA H200", "count": 9, "nodes": ""}],
        "missing": [{"what": "it did not tell its facts within 20 s", "count": 1, "nodes": "node9"}],
    }


def test_lost_nodes_are_errors_in_junit() -> None:
    suite = ET.fromstring(text(judged([*HEALTHY, dead("node8"), dead("node9")]), "junit"))
    (case,) = suite.findall("testcase[@classname='verl-doctor.nodes']")
    assert case.get("name") == "2 nodes did not respond"
    assert case.findtext("error") == "node[8-9]"
    assert suite.get("errors") == "1"


def test_report_of_many_nodes_fits_80_columns() -> None:
    report = judged([*HEALTHY, dead("node9"), node("node8", with_version("vllm", "0.10.2"))])
    lines = [line.plain for line in render_text.render(report, width=80)]
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("WILL FAIL")
    assert "  8 nodes agree; 1 differs from most; 1 did not respond" in lines


def test_rule_that_could_not_be_judged_on_some_nodes_names_them() -> None:
    blind = [
        replace(answer, facts={**answer.facts, "HostMemory": '{"unknown": "/proc is hidden"}'})
        for answer in HEALTHY[:2]
    ]
    results = {result.code: result for result in judged([*blind, *HEALTHY[2:]]).results}
    assert results["HOST113"].status == "pass"
    assert results["HOST113"].reason == "/proc is hidden on node[00001-00002]"


def test_nodes_whose_gpus_cannot_be_queried_are_not_reported_as_without_gpus() -> None:
    lost = replace(HEALTHY[0], facts={**HEALTHY[0].facts, "Gpus": '{"unknown": "NVML hangs"}'})
    report = judged([lost, *HEALTHY[1:]])
    assert "1 node with GPUs that could not be queried (node00001)" in text(report)
    assert "CUDA162" not in {code for code, _, _ in reported(report)}


def facts_file(folder: Path, name: str, answer: NodeResponse) -> Path:
    facts = {fact: json.loads(entry) for fact, entry in answer.facts.items()}
    path = folder / name
    path.write_text(json.dumps({"schema_version": 1, "verl_doctor": "0", "facts": facts}), "utf-8")
    return path


@pytest.mark.slow
def test_facts_files_name_their_nodes(tmp_path: Path) -> None:
    files = [facts_file(tmp_path, f"node{number}.json", HEALTHY[number]) for number in range(4)]
    files.append(facts_file(tmp_path, "odd.json", node("x", with_version("vllm", "0.10.2"))))
    files.append(tmp_path / "cut.json")
    files[-1].write_text(files[0].read_text("utf-8")[:500], "utf-8")
    report = fleet.judge_files(files, SESSION)
    assert [one for code, _, one in reported(report) if code == "PKG120"] == ["odd"]
    assert report.nodes is not None
    assert [(group.nodes, group.what) for group in report.nodes.missing] == [
        ("cut", "its facts file is not a facts file; make one with: verl-doctor check --save-facts FILE")
    ]
    with pytest.raises(UsageError, match="cannot be read"):
        fleet.judge_files([*files, tmp_path / "nowhere.json"], SESSION)


@pytest.mark.slow
def test_folder_expands_to_its_facts_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no facts files"):
        fleet.judge_files([tmp_path], SESSION)
    for number in range(3):
        facts_file(tmp_path, f"node{number}.json", HEALTHY[number])
    report = fleet.judge_files([tmp_path], SESSION)
    assert report.nodes is not None
    assert report.nodes.answered == 3
    assert (report.target["chosen_by"], report.target["python_version"]) == ("3 facts files", "3.12.3")
    assert report.target["vllm"]["version"] == "0.24.0"
    assert report.target["arguments"] == ["--facts", str(tmp_path)]
    twice = fleet.judge_files([tmp_path, tmp_path / "node1.json"], SESSION)
    assert twice.nodes is not None
    assert twice.nodes.answered == 3


def test_same_file_name_in_two_folders_gives_two_nodes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        tmp_path.joinpath(folder).mkdir()
    files = [facts_file(tmp_path / folder, "facts.json", HEALTHY[0]) for folder in ("a", "b")]
    report = fleet.judge_files(files, SESSION)
    assert report.nodes is not None
    assert report.nodes.answered == 2


def with_versions(number: str) -> Edit:
    """Every package in another version."""

    def edit(facts: dict[str, Any]) -> None:
        for distribution in facts["Packages"]["distributions"]:
            distribution["version"] = number

    return edit


def test_different_images_on_two_halves_give_one_finding() -> None:
    answers = [node(name, with_versions(str(index % 2))) for index, name in enumerate(numbered(6))]
    found = [one for rule, one in findings(judged(answers)) if rule == "PKG120"]
    assert len(found) == 1
    assert "there is no majority" in found[0].message
    assert found[0].node == "node[00001-00006]"


def test_different_image_on_few_nodes_gives_one_finding() -> None:
    answers = [node(name, *([with_versions("9")] if name == "node00003" else [])) for name in numbered(6)]
    (found,) = [one for rule, one in findings(judged(answers)) if rule == "PKG120"]
    assert found.message.startswith("node00003 has ")
    assert len(found.message) < 300


@pytest.mark.slow
def test_number_of_findings_is_bounded_for_many_different_drifts() -> None:
    names = [distribution["name"] for distribution in json.loads(texts()["Packages"])["is"]["distributions"]]
    odd = [node(f"odd{number:02}", with_version(names[number], "0.0.1")) for number in range(20)]
    found = [one for rule, one in findings(judged([*map(node, numbered(25)), *odd])) if rule == "PKG120"]
    assert len(found) == 8
    assert {name for finding in found for name in expand(finding.node or "")} == {
        answer.node for answer in odd
    }
    assert "13 more nodes differ from most" in found[-1].message


def test_value_that_contains_the_node_name_is_not_drift() -> None:
    answers = [node(name, with_value("Variables", "values.UCX_OWN", name)) for name in numbered(6)]
    report = judged(answers)
    assert "ENV130" not in {code for code, _, _ in reported(report)}
    assert report.nodes is not None
    assert report.nodes.agree == 6


def test_clocks_that_all_differ_are_reported() -> None:
    clocks = [all_have("ClockOffset", {"ahead": 60.0 * number, "within": 0.1}) for number in range(4)]
    answers = [node(name, clocks[number]) for number, name in enumerate(numbered(4))]
    (found,) = [one for rule, one in findings(judged(answers)) if rule == "NET120"]
    assert "there is no majority" in found.message


@pytest.mark.slow
def test_different_modification_times_of_copies_are_at_most_a_hint() -> None:
    copies = [
        node(name, all_have("JobFiles", job_file(changed=10**9 + index)))
        for index, name in enumerate(numbered(5))
    ]
    assert "HOST131" not in {code for code, _, _ in reported(judged(copies))}
    same = [all_have("JobFiles", job_file(changed=10**9)), all_have("JobFiles", job_file(changed=10**9 + 7))]
    report = judged([node(name, same[name == "node00003"]) for name in numbered(5)])
    (found,) = [one for rule, one in findings(report) if rule == "HOST131"]
    assert (found.severity, found.node) == ("info", "node00003")
    assert report.nodes is not None
    assert report.nodes.agree == 5


def test_reasons_that_differ_only_in_numbers_are_merged() -> None:
    lost = [
        dead(f"node{number}", f"Ray declared it dead: no heartbeat for {number} s") for number in (12, 13, 40)
    ]
    report = judged([*HEALTHY, *lost])
    assert report.nodes is not None
    (group,) = report.nodes.missing
    assert (group.what, group.count) == ("Ray declared it dead: no heartbeat for 12 s to 40 s", 3)
    assert group.nodes == "node[12-13,40]"
