from __future__ import annotations

from pathlib import Path

from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.rehearsal_left import Left


def test_new_segments_that_nobody_maps_and_own_sockets_are_removed(tmp_path: Path) -> None:
    for folder in ("dev/shm", "tmp", "proc/7"):
        (tmp_path / folder).mkdir(parents=True)
    memory, sockets = tmp_path / "dev/shm", tmp_path / "tmp"
    (memory / "psm_old").touch()
    with Left(Machine(root=tmp_path), {"VERL_DOCTOR_JOB": "ab12"}):
        for name in ("psm_new", "verl_weights_new", "psm_used", "of_somebody"):
            (memory / name).touch()
        for name in ("ab12", "01000000"):
            (sockets / f"rl-colocate-zmq-{name}-replica-0-rank-0.sock").touch()
        (tmp_path / "proc/7/maps").write_text("7f00-7f01 rw-s 00000000 00:1a 3  /dev/shm/psm_used\n")
    assert {path.name for path in memory.iterdir()} == {"of_somebody", "psm_old", "psm_used"}
    assert [path.name for path in sockets.iterdir()] == ["rl-colocate-zmq-01000000-replica-0-rank-0.sock"]
