"""A script that starts verl in an unreadable way is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.collectors.launch.unparsed_start import unread_start
from verl_doctor.toolkit.machine import Machine


@pytest.mark.parametrize(
    "text",
    [
        "sbatch <<EOF\npython3 -m verl.trainer.main_ppo a=1\nEOF\n",
        "cd x\nout=$(python3 -m verl.trainer.main_ppo)\n",
        "true\nssh h \"bash -c 'python3 recipe/dapo/main_dapo_ppo.py a=1'\"\n",
    ],
)
def test_unparsed_start_line_is_named(text: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(text)
    line = unread_start(Machine(), ["/nowhere/else.sh", str(script)])
    assert line.startswith(f"{script}:2 has one")


def test_comments_and_echoes_are_not_starts(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("# python3 -m verl.trainer.main_ppo\necho verl.trainer\n")
    assert unread_start(Machine(), [str(script)]) == ""
