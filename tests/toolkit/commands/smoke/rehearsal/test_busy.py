from __future__ import annotations

import os
from pathlib import Path

from verl_doctor.toolkit.commands.smoke.rehearsal.busy import wanted_seconds
from verl_doctor.toolkit.machine import Machine


def test_running_and_waiting_time_of_threads_is_summed(tmp_path: Path) -> None:
    for thread, text in (("7", "1500000000 500000000 9"), ("8", "1000000000 0 1")):
        folder = tmp_path / "proc/7/task" / thread
        folder.mkdir(parents=True)
        (folder / "schedstat").write_text(text)
    assert wanted_seconds([7, 99], Machine(root=tmp_path)) == {7: 2.0, 8: 1.0}


def test_current_process_has_used_processor_time() -> None:
    assert wanted_seconds([os.getpid()], Machine())[os.getpid()] > 0
