"""The reader of a GCS beside a miniature of Ray: in time, whatever hangs or lacks, and no more of a table than is bearable."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verl_doctor.toolkit import child_ray_state
from verl_doctor.toolkit.child import ask_child
from verl_doctor.toolkit.child_ray_state import identity, latest
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

HANGS = "class GcsClient:\n    def __init__(self, address):\n        import time; time.sleep(60)\n"
REFUSES = (
    "class GcsClient:\n    def __init__(self, address):\n        raise RuntimeError('InvalidAuthToken')\n"
)
LACKS = (
    "class GcsClient:\n    def __init__(self, address): self.cluster_id = bytes.fromhex('ab12')\n"
    '    def internal_kv_get(self, key, namespace, timeout): return b\'{"ray_version": "9.9"}\'\n'
    "class GcsClientOptions:\n    create = staticmethod(lambda *a, **k: None)\n"
    "class GlobalStateAccessor:\n    def __init__(self, options): pass\n    def connect(self): return True\n"
)


def answer(folder: Path, raylet: str) -> dict[str, Any]:
    (folder / "ray").mkdir()
    (folder / "ray" / "__init__.py").touch()
    (folder / "ray" / "_raylet.py").write_text(raylet)
    machine = Machine(environ={"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)})
    question = '{"address": "10.0.0.1:6379", "limit": 0.3}'
    heard = ask_child(machine, sys.executable, child_ray_state, question, timeout=20)
    assert not isinstance(heard, Unknown)
    ended, told = heard
    assert isinstance(told, dict), ended.stderr
    return told


def test_a_gcs_that_does_not_answer(tmp_path: Path) -> None:
    told = answer(tmp_path, HANGS)
    assert told == {"untold": ["the GCS did not answer all questions within 0.3 s"], "asked": True}


def test_a_gcs_that_refuses(tmp_path: Path) -> None:
    assert answer(tmp_path, REFUSES)["refused"] == "RuntimeError: InvalidAuthToken"


def test_a_ray_that_lacks_what_is_needed_for_the_tables(tmp_path: Path) -> None:
    """What could be learned is told, and of the rest why it could not."""
    told = answer(tmp_path, LACKS)
    assert (told["cluster"], told["metadata"]["ray_version"], told["nodes"]) == ("ab12", "9.9", None)
    assert [said.partition(":")[0] for said in told["untold"]] == ["nodes", "jobs", "groups", "actors"]


def test_of_a_table_that_only_grows_the_last_entries_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_ray_state, "MOST", 2)
    ended = [SimpleNamespace(end=when, over=True) for when in (3, 1, 2)]
    alive = [SimpleNamespace(end=0, over=False) for _ in range(3)]
    kept = list(latest([*ended, *alive], lambda one: one.over, lambda one: one.end))
    assert [one.end for one in kept] == [3, 2, 0, 0, 0]


def test_rays_nil_is_no_identity() -> None:
    assert (identity(b"\xff" * 28), identity(b"\x01\xff"), identity(b"")) == ("", "01ff", "")
