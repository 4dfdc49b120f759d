from __future__ import annotations

import json
import sys
from pathlib import Path

from verl_doctor.toolkit.commands.smoke.rehearsal.files import Rows, first_rows
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine

ROWS = [{"prompt": [{"role": "user", "content": f"{number}?"}]} for number in range(20)]


def test_first_rows_of_jsonl_and_json_are_copied(tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (tmp_path / "list.json").write_text(json.dumps(ROWS[:3]))
    found = first_rows(Machine(cwd=tmp_path), sys.executable, ("lines.jsonl", "list.json"), tmp_path / "own")
    assert not isinstance(found, Unknown)
    lines, whole = (file.path for file in found)
    assert [json.loads(line) for line in lines.read_text().splitlines()] == ROWS[:8]
    assert json.loads(whole.read_text()) == ROWS[:3]
    assert {file.path.parent for file in found} == {tmp_path / "own"}
    assert {file.columns for file in found} == {("prompt",)}


def test_folder_is_left_to_the_dataset_class(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    assert first_rows(Machine(cwd=tmp_path), sys.executable, ("rows",), tmp_path / "own") == (
        Rows(tmp_path / "rows"),
    )


def test_missing_damaged_or_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[1, 2")
    (tmp_path / "empty.jsonl").touch()
    results = {
        name: first_rows(Machine(cwd=tmp_path), sys.executable, (name,), tmp_path / "own")
        for name in ("none.parquet", "bad.json", "empty.jsonl")
    }
    reasons = [result.reason for result in results.values() if isinstance(result, Unknown)]
    assert len(reasons) == 3
    assert "does not exist" in reasons[0]
    assert "JSONDecodeError" in reasons[1]
    assert "has no rows" in reasons[2]
