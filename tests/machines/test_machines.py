"""Recorded facts of real machines, judged by the rules of today."""

from __future__ import annotations

import json
from pathlib import Path

from support.places import MACHINES
from support.running import Doctor


def test_machine_that_trained_has_findings_only_about_its_script(here: Doctor, tmp_path: Path) -> None:
    """verl 0.9.1 with the vLLM 0.24.0 that its extra pins: a GRPO step was run there to its end, with head size 64.

    The script whose facts these are asks for FLASHINFER with a model of head size 80, which that vLLM refused there with
    "head_size not supported". verl's composed configuration is not among the facts.
    """
    facts = MACHINES / "h200-verl-0.9.1-vllm-0.24.0.json"
    done = here("check", "--facts", facts, "--format", "json", cwd=tmp_path)
    report = json.loads(done.stdout)
    reported = {
        (result["code"], finding["severity"])
        for result in report["results"]
        for finding in result["findings"]
        if finding["severity"] != "info"
    }
    assert reported == {
        ("ATT104", "error"),
        ("VLLM102", "warning"),  # quantisation-aware training, which the script does not turn on
        ("VLLM110", "warning"),
    }
    paths = [(path["path"], path["state"], path["phase"], path["codes"]) for path in report["paths"]]
    assert paths == [
        ("trainer", "will_fail", "engine", ["ATT104"]),
        ("async rollout", "will_fail", "engine", ["ATT104"]),
    ]
