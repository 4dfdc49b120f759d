"""Names of leftovers."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.collectors.leftovers.places import place_at


@pytest.mark.parametrize(
    ("path", "pid"),
    [
        ("/dev/shm/cuda.shm.0.1251.1", 4689),
        ("/dev/shm/cuda.shm.3e8.3b55.2", 15189),
        ("/dev/shm/sem.loky-5002-h4et9966", 5002),
        ("/dev/shm/torch_4711_9_0", 4711),
        ("/dev/shm/psm_9daa4304", 0),
        ("/tmp/verl_vllm_zmq_12_0.ipc", 12),
        ("/tmp/verl-doctor-4711-h4et_966", 4711),
    ],
)
def test_process_number_is_read_from_the_name(path: str, pid: int) -> None:
    place = place_at(path)
    assert place is not None
    assert (place.path, place.pid) == (path, pid)


@pytest.mark.parametrize("name", ["cuda.shm", "cuda.shm.0.zz.1", "sem.loky-me-x", "weights.bin", "sem.mine"])
def test_other_names_are_not_leftovers(name: str) -> None:
    assert place_at(f"/dev/shm/{name}") is None


# A demonstration's environment, logs that `smoke` kept, and what 0.1 made: none of them holds the number of a process.
@pytest.mark.parametrize("name", ["demo-h4et_966", "smoke-2026-11-28T05-00-00-node-h4et_966", "h4et_966"])
def test_doctor_folders_that_users_keep_are_not_leftovers(name: str) -> None:
    assert place_at(f"/tmp/verl-doctor-{name}") is None
