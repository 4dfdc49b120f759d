"""A result of an installer is kept only while everything local that decides what it is offered stays the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.packages.index_inputs import index_inputs
from verl_doctor.toolkit.machine import Machine


@pytest.mark.parametrize(
    ("variables", "file"),
    [
        ({"PIP_CONSTRAINT": "c.txt"}, "c.txt"),
        ({"PIP_FIND_LINKS": "wheels"}, "wheels/a-2-py3-none-any.whl"),
        ({"UV_FIND_LINKS": "$ROOT/wheels"}, "wheels/a-2-py3-none-any.whl"),
        ({"PIP_INDEX_URL": "file://$ROOT/simple"}, "simple/torch/torch-2-py3-none-any.whl"),
    ],
)
def test_changed_files_are_noticed(variables: dict[str, str], file: str, tmp_path: Path) -> None:
    for name in ("c.txt", "wheels/a-1-py3-none-any.whl", "simple/torch/torch-1-py3-none-any.whl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    environ = {name: value.replace("$ROOT", str(tmp_path)) for name, value in variables.items()}
    machine = Machine(environ=environ, cwd=tmp_path)
    before = index_inputs(machine, tmp_path / "env")
    assert index_inputs(machine, tmp_path / "env") == before
    (tmp_path / file).write_text("22")
    assert index_inputs(machine, tmp_path / "env") != before


def test_what_an_installer_caches_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "cache" / "http").mkdir(parents=True)
    machine = Machine(environ={"PIP_CACHE_DIR": str(tmp_path / "cache")}, cwd=tmp_path)
    before = index_inputs(machine, tmp_path / "env")
    (tmp_path / "cache" / "http" / "0123").write_text("page")
    os.utime(tmp_path / "cache" / "http", (1, 1))
    assert index_inputs(machine, tmp_path / "env") == before
