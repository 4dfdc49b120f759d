"""A pattern that matches no launch file is reported, unless not all files could be looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.engine import unused_ignores
from verl_doctor.toolkit.engine.config import load
from verl_doctor.toolkit.engine.unused_ignores import announce_unused


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "jobs" / "old").mkdir(parents=True)
    (tmp_path / "jobs" / "old" / "debug.sh").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "is_reported"),
    [
        ("jobs/debg*.sh", True),
        ("debug.py", True),
        ("jobs/*.sh", False),
        ("debug.sh", False),
        ("jobs/old", True),
        ("other.sh", False),
        ("/elsewhere/*.sh", False),
    ],
)
def test_pattern_that_matches_no_file_is_reported(
    top: Path, pattern: str, is_reported: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    config = top / "verl-doctor.toml"
    config.write_text(f'[per_file_ignores."{pattern}"]\nCFG111 = {{ reason = "x", until = 2099-12-31 }}\n')
    announce_unused(load(top), [Path("/elsewhere/other.sh")])
    sentence = f'{config}: per_file_ignores."{pattern}" silences nothing: no file below {top} matches it'
    assert capsys.readouterr().err == (f"verl-doctor: {sentence}\n" if is_reported else "")


def test_nothing_is_reported_where_searching_takes_too_long(
    top: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(unused_ignores, "_PATIENCE", -1.0)
    (top / "verl-doctor.toml").write_text(
        '[per_file_ignores."a.sh"]\nCFG111 = { reason = "x", until = 2099-12-31 }\n'
    )
    announce_unused(load(top), [])
    assert capsys.readouterr().err == ""
