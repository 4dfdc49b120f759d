"""The table of variables agrees with the rule about unread variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.checks.variables._variable_history import what_became_of
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.commands.environment import variable_table as module
from verl_doctor.toolkit.commands.environment.variable_table import purposes
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.target import Target


@pytest.mark.parametrize("name", ["RAY_num_prestart_python_workers", "VLLM_WORKER_USE_RAY"])
def test_variable_unread_by_every_release_is_marked_as_without_effect(name: str) -> None:
    assert what_became_of(name) is not None
    assert purposes()[name].startswith("has no effect")


def test_unfinished_search_is_given_as_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Unknown("the compiled files could not be read in time")
    monkeypatch.setattr(module, "readers_of", lambda *_: slow)
    facts = {Interpreter: slow, VerlTrees: slow, VllmTree: slow}
    lines = list(module.variable_table(Target(tmp_path / "python", "--python"), facts))  # type: ignore[arg-type]
    assert all(line.endswith(f"Readers unknown: {slow.reason}.") for line in lines)
