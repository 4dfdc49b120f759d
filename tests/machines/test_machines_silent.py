"""What the rules about machines say of machines that are well: nothing that anybody would act on.

`h200-with-job.json`, `head-node-of-two.json` and `closed-container.json` were taken by the doctor on real machines, the
first on an H200 node with verl 0.9.1 and vLLM 0.24.0 that trained, the second beside a real head of Ray on a host with
cgroup v1, the third as an ordinary user in namespaces whose /sys is empty, whose /dev has no devices, and whose /proc
shows one's own processes alone. No laptop was at hand: `laptop.json` is written by hand, from what Linux shows on one
with an RTX 4060 of 8 GB that draws the screen, 12 CPUs and 16 GiB, wireless network, Docker and a VPN.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.machine_facts import Facts, eight_gpus, healthy_node, judged, machine

_NVML = "there is no NVIDIA GPU here (NVML Shared Library Not Found)"
_ONE_NODE = "no sign that the job runs on more than one machine"
_SEVERAL_NODES = "NET101 NET104 NET105 NET107 NET108 NET109 NET110 NET111 NET112 NET117"
_NO_GPU = {
    "there is no NVIDIA GPU here": (
        "CUDA101 CUDA102 CUDA103 CUDA104 CUDA105 CUDA106 CUDA107 CUDA108 CUDA109"
    ),
    _NVML: (
        "CUDA114 CUDA115 CUDA140 CUDA141 CUDA142 CUDA143 CUDA144 CUDA145 CUDA146 CUDA147 CUDA148 CUDA149 CUDA150"
        " CUDA151 CUDA152 CUDA154 CUDA155 CUDA156 NET130 NET131 NET132 NET133"
    ),
    f"nothing is compiled for GPUs here: {_NVML}": "CUDA133 CUDA135 CUDA136 ENV117",
    "FlashInfer is not installed in this environment": "CUDA130 CUDA131 CUDA132 CUDA134",
    "no GPU is visible on this machine, so the job runs elsewhere": "CUDA157 HOST110",
    "no engine of this job is Megatron": "ENV114",
    "no variable names a proxy": "NET113",
}
# What is not judged, by the reason that is given; every other rule must pass.
_NOT_JUDGED = {
    "h200-with-job": {
        "a collective needs two GPUs, and the job sees 1 of 1": "NET130 NET131 NET132",
        "the configuration of its model was not recorded": "CUDA157",
        "no engine of this job is Megatron": "ENV114",
        "no variable names a proxy": "NET113",
        "no address of a head is named with its port": "NET116",
        _ONE_NODE: _SEVERAL_NODES,
    },
    "head-node-of-two": {
        **_NO_GPU,
        "this machine shows no InfiniBand or RoCE adapter": "NET107 NET108 NET109 NET110 NET111 NET112",
    },
    "closed-container": {
        **_NO_GPU,
        "no address of a head is named with its port": "NET116",
        _ONE_NODE: _SEVERAL_NODES,
    },
    "laptop": {
        "FlashInfer is not installed in this environment": "CUDA130 CUDA131 CUDA132 CUDA134",
        "vLLM is not installed in this environment": "CUDA137 ENV115 NET133",
        "a collective needs two GPUs, and the job sees 1 of 1": "NET130 NET131 NET132",
        "no launch script was named: verl-doctor check LAUNCH_SCRIPT reads one": "CUDA157 ENV114 ENV118 HOST110 HOST116",
        "no variable names a proxy": "NET113",
        "no address of a head is named with its port": "NET116",
        "the kernel's log may not be read": "CUDA143",
        _ONE_NODE: _SEVERAL_NODES,
    },
}
_FOUND = {
    # Its job compiled nothing; a model for vLLM's second model runner would.
    "h200-with-job": {("CUDA130", "info")},
    # No time server reaches that virtual machine, and its environment is for rehearsals without a GPU.
    "head-node-of-two": {("NET117", "info"), ("CUDA117", "warning")},
    "closed-container": {("CUDA117", "warning")},
}


@pytest.mark.parametrize("name", _NOT_JUDGED)
def test_healthy_machine_has_no_findings(name: str) -> None:
    results = judged(machine(name))
    reported = {(result.code, finding.severity) for result in results for finding in result.findings}
    assert reported == _FOUND.get(name, set())
    assert [(result.code, result.reason) for result in results if result.status == "error"] == []


@pytest.mark.parametrize("name", _NOT_JUDGED)
def test_skipped_rule_has_a_reason(name: str) -> None:
    """A rule that stops judging a machine is noticed, and so is one that judges missing facts."""
    found: dict[str, list[str]] = {}
    for result in judged(machine(name)):
        if result.status in ("skipped", "not_applicable"):
            found.setdefault(result.reason, []).append(result.code)
    assert {reason: " ".join(sorted(codes)) for reason, codes in found.items()} == _NOT_JUDGED[name]


def test_only_unobservable_facts_are_skipped() -> None:
    skipped = {
        (name, result.code)
        for name in _NOT_JUDGED
        for result in judged(machine(name))
        if result.status == "skipped"
    }
    assert skipped == {("laptop", "CUDA143")}


def test_limits_hidden_by_a_container_do_not_pass() -> None:
    results = judged(machine("closed-container"))
    assert [result.code for result in results if result.unjudged] == ["HOST101", "HOST102", "HOST114"]


@pytest.mark.parametrize("node", [healthy_node, eight_gpus])
def test_node_with_a_compiled_sampler_has_no_findings(node: Callable[[], Facts]) -> None:
    assert [result.code for result in judged(node()) if result.findings] == []
