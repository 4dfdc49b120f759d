"""Findings of the rules about GPUs on recorded machines, and on the same machines with one fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.places import MACHINES
from support.running import inside

RECORDED = MACHINES / "h200-two-gpus.json"
RULES = "CUDA14,CUDA15,NET130,NET131,NET132"
Ask = Callable[[dict[str, Any]], dict[str, str]]


@pytest.fixture
def states_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    """The states of the rules by their codes, with these facts."""

    def answer(facts: dict[str, Any]) -> dict[str, str]:
        file = tmp_path / "facts.json"
        file.write_text(json.dumps(facts), "utf-8")
        report = inside(
            "check", "--facts", file, "--deep", "--select", RULES, "--format", "json",
            cwd=tmp_path, monkeypatch=monkeypatch, capfd=capfd,
        )  # fmt: skip
        return {result["code"]: result["status"] for result in json.loads(report.stdout)["results"]}

    return answer


def recorded() -> dict[str, Any]:
    """Two H200 with NVLink in a virtual machine, on which an all-reduce was run."""
    facts: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
    return facts


def test_two_healthy_gpus_with_nvlink(states_of: Ask) -> None:
    states = states_of(recorded())
    assert {code for code, state in states.items() if state == "pass"} >= {
        "CUDA140", "CUDA141", "CUDA142", "CUDA144", "CUDA147", "CUDA148", "CUDA152", "NET130", "NET131", "NET132",
    }  # fmt: skip
    assert set(states.values()) == {"pass", "skipped"}  # the kernel's log and verl are not among the facts


def test_machine_without_gpus(states_of: Ask) -> None:
    facts = recorded()
    facts["facts"] = {
        name: {"absent": "there is no NVIDIA GPU here"}
        for name in ("Gpus", "VisibleDevices", "Collective", "Xids", "ForeignDevices")
    }
    states = states_of(facts)
    assert {code for code, state in states.items() if state != "not_applicable"} <= {
        "CUDA157"
    }  # it also needs the model


def test_silent_driver_lets_no_rule_pass(states_of: Ask) -> None:
    facts = recorded()
    facts["facts"]["Gpus"] = {"is": {"refused": "Unknown Error"}}
    states = states_of(facts)
    assert [code for code, state in states.items() if state == "fail"] == ["CUDA140"]
    assert {state for code, state in states.items() if code.startswith("CUDA")} == {"fail", "skipped"}


@pytest.mark.parametrize(
    ("why", "state"),
    [
        ("NVML could not be queried: the process ended with status 0 without a result", "warn"),
        ("there is no libnvidia-ml.so.1; a container needs the driver capability 'utility'", "fail"),
    ],
)
def test_gpus_without_data_do_not_pass(states_of: Ask, why: str, state: str) -> None:
    facts = recorded()
    facts["facts"]["Gpus"] = {"unknown": why}
    facts["facts"]["GpuNodes"] = {"is": {"paths": ["/dev/nvidia0", "/dev/nvidia1"]}}
    states = states_of(facts)
    assert states.pop("CUDA140") == state
    assert {found for code, found in states.items() if code.startswith("CUDA")} == {"skipped"}


def test_facts_file_without_gpu_facts_does_not_pass(states_of: Ask) -> None:
    facts = recorded()
    del facts["facts"]["Gpus"]
    assert states_of(facts)["CUDA140"] == "skipped"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"trouble": "GPU is lost"}, "CUDA155"),
        ({"health": {"ecc": True, "uncorrected": 3}}, "CUDA142"),
        ({"slowdowns": ["hardware thermal slowdown"]}, "CUDA144"),
        ({"compute_mode": "exclusive process"}, "CUDA146"),
        ({"fabric": {"state": "in progress"}}, "CUDA147"),
        ({"links_active": 9}, "CUDA148"),
        ({"bus": {"width": 8, "width_most": 16}}, "CUDA149"),
        ({"mig": True}, "CUDA145"),
    ],
)
def test_one_root_cause_gives_one_line(states_of: Ask, change: dict[str, Any], code: str) -> None:
    facts = recorded()
    facts["facts"]["Gpus"]["is"]["devices"][1].update(change)
    assert [found for found, state in states_of(facts).items() if state in ("fail", "warn")] == [code]
