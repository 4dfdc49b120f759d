"""`tests/machines/record.py` keeps the machine in a facts file and removes the identity of its owner."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.machine_facts import MACHINES, known

from verl_doctor.toolkit.engine import factsfile


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_machine", MACHINES / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


record = _module()
_GPU = "GPU-6c1f4d2e-8a3b-4c5d-9e7f-0123456789ab"


def _document(**facts: Any) -> dict[str, Any]:
    return {"schema_version": 1, "verl_doctor": "0.1.0", "facts": facts}


def _kept(folders: dict[str, str] | None = None, **facts: Any) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(record.recorded(_document(**facts), folders))["facts"]
    return kept


def test_facts_unused_by_machine_rules_are_left_out() -> None:
    assert set(_kept(Bytecode={"is": {}}, SharedMemory={"is": {"size": 1}})) == {"SharedMemory"}


def test_facts_that_mask_machine_rules_are_kept() -> None:
    assert {"Wheels", "Interpreter", "Packages"} <= record.needed_facts()


def test_machine_and_user_names_are_replaced_consistently() -> None:
    network = {
        "host": {"name": "trainer-7.example", "addresses": ["10.20.30.40"]},
        "interfaces": [{"addresses": ["127.0.0.1", "10.20.30.40", "fe80::1ff:fe23:4567:890a", "8.8.4.4"]}],
    }
    variables = {
        "values": {"A": "/home/ann/x:/tmp/inductor_ann", "B": "trainer-7.example", "C": "10.20.30.40"}
    }
    kept = _kept(Network={"is": network}, Variables={"is": variables})
    host, (interface,) = kept["Network"]["is"]["host"], kept["Network"]["is"]["interfaces"]
    assert host["name"] == "node"
    loopback, own, link, other = interface["addresses"]
    assert loopback == "127.0.0.1"
    assert host["addresses"] == [own]
    assert own.startswith("10.0.0.")
    assert link.startswith("fe80::")
    assert link != "fe80::1ff:fe23:4567:890a"
    assert other.startswith("192.0.2.")
    assert kept["Variables"]["is"]["values"] == {
        "A": "/home/user/x:/tmp/inductor_user",
        "B": "node",
        "C": own,
    }


def test_gpu_and_container_ids_are_replaced() -> None:
    group = f"/sys/fs/cgroup/pod/{'3e54d90c' * 4}"
    kept = _kept(
        Gpus={"is": {"devices": [{"uuid": _GPU}]}},
        VisibleDevices={"is": {"choice": {"value": f"{_GPU},GPU-6c1f4d2e"}}},
        HostLimits={"is": {"folder": group}},
    )
    uuid = kept["Gpus"]["is"]["devices"][0]["uuid"]
    assert re.fullmatch(r"GPU-0{7}[1-9]-0000-0000-0000-0{12}", uuid)
    assert kept["VisibleDevices"]["is"]["choice"]["value"].startswith(f"{uuid},GPU-0000000")
    assert re.fullmatch(r"/sys/fs/cgroup/pod/0{31}\d", kept["HostLimits"]["is"]["folder"])


def test_only_matching_folders_are_renamed() -> None:
    """Prefixes of root and of images are always removed: no file of this repository may contain them."""
    folder = {"path": ":".join(("/scratch/env/bin", "/scratch/env2", "/root" + "/.cache", "/opt" + "/gcc"))}
    kept = _kept({"/scratch/env": "/env"}, Caches={"is": folder})
    assert kept["Caches"]["is"]["path"] == "/env/bin:/scratch/env2:/home/user/.cache:/usr/local/gcc"


def test_version_is_not_an_address() -> None:
    packages = {
        "distributions": [
            {"name": "nvidia-cufile", "version": "1.15.1.6", "requires": ["a", "b; extra == 'x'"]}
        ]
    }
    (kept,) = _kept(Packages={"is": packages})["Packages"]["is"]["distributions"]
    assert kept == {"name": "nvidia-cufile", "version": "1.15.1.6", "requires": ["a"]}


@pytest.mark.parametrize(
    "values",
    [
        {"HF_TOKEN": "abc"},
        {"URL": "https://ann:pass@host/"},
        {"X": "hf_" + "a" * 34},
        {"Y": "--password=abc"},
    ],
)
def test_secret_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(record.RefusedError, match="secret"):
        record.recorded(_document(Variables={"is": {"values": values}}))


def test_adding_a_fact_changes_nothing_else() -> None:
    text = (MACHINES / "laptop.json").read_text("utf-8")
    facts = json.loads(text)["facts"]
    without = record._written(json.loads(text), {key: facts[key] for key in facts.keys() - {"Network"}})
    assert record.with_fact(without, "Network", facts["Network"]) == text
    with pytest.raises(record.RefusedError, match="no rule about machines needs it"):
        record.with_fact(text, "Lunch", {"absent": "none"})


@pytest.mark.slow
def test_same_facts_give_the_same_file() -> None:
    text = (MACHINES / "head-node-of-two.json").read_text("utf-8")
    assert record.recorded(json.loads(text)) == record.recorded(json.loads(text))


def test_recorded_machine_is_a_facts_file(tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text(record.recorded(_document(SharedMemory={"is": {"size": 1, "free": 1}})), "utf-8")
    assert any(getattr(fact, "size", None) == 1 for fact in factsfile.load(file, known().collectors).values())


@pytest.mark.parametrize("name", ["h200-with-job", "head-node-of-two", "closed-container"])
def test_recorded_machine_contains_no_names(name: str) -> None:
    text = (MACHINES / f"{name}.json").read_text("utf-8")
    assert set(re.findall(r"/home/([^/\"]+)", text)) <= {"user"}
    assert not re.findall(r"\b(?!0{8})[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-", text)
    assert not re.findall(r"(?<![0-9a-f])(?!0{20})[0-9a-f]{32,}(?![0-9a-f])", text)
