"""Memory messages of engines, in the wording of several releases."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.collectors.vllm.engine_log import EngineLog, read_engine_log

START = """\
(EngineCore_0 pid=7) INFO 11-21 18:00:01 [gpu_model_runner.py:4119] Model loading took 14.25 GiB memory and 3.1 seconds
(EngineCore_0 pid=7) INFO 11-21 18:00:02 [gpu_worker.py:357] Available KV cache memory: 101.5 GiB
(EngineCore_0 pid=7) INFO 11-21 18:00:03 [gpu_model_runner.py:5052] Graph capturing finished in 12 secs, took 1.75 GiB
"""
SLEEP = """\
(EngineCore_0 pid=7) INFO 11-21 18:00:04 [cumem.py:214] CuMemAllocator: sleep freed 118.30 GiB memory in total, of which 14.25 GiB is backed up in CPU and the rest 104.05 GiB is discarded directly.
(EngineCore_0 pid=7) INFO 11-21 18:00:04 [gpu_worker.py:129] Sleep mode freed 118.30 GiB memory, 15.95 GiB memory is still in use.
(EngineCore_0 pid=7) INFO 11-21 18:00:04 [abstract.py:307] It took 0.512345 seconds to fall asleep.
"""
WAKE = "(EngineCore_0 pid=7) INFO 11-21 18:00:05 [abstract.py:325] It took 0.1 seconds to wake up tags {'weights'}.\n"


def log_of(text: str, *pids: int) -> EngineLog:
    """State of the engines with these process numbers, read from a log."""
    return read_engine_log(text.splitlines(), pids or (7,))


def test_sleeping_engine_is_recognised() -> None:
    assert log_of(START + SLEEP) == EngineLog(
        asleep=True, freed=118.3, in_use=15.95, weights=14.25, cache=101.5, graphs=1.75
    )


def test_woken_engine_is_not_asleep() -> None:
    assert not log_of(START).asleep
    assert not log_of(SLEEP + WAKE).asleep
    assert log_of(SLEEP + WAKE + SLEEP).asleep


def test_lines_of_another_engine_are_ignored() -> None:
    other = SLEEP.replace("pid=7", "pid=8").replace("118.30", "1.00")
    assert log_of(SLEEP + other).freed == 118.3
    assert log_of(other + WAKE, 8).asleep


@pytest.mark.parametrize(
    "line",
    [
        "INFO 05-01 10:00:00 [gpu_worker.py:96] Sleep mode freed 40.00 GiB memory, 3.50 GiB memory is still in use.",
        "(WorkerDict pid=9) INFO 05-01 10:00:00 [worker.py:146] Sleep mode freed 40.00 GiB memory, 3.50 GiB memory is still in use.",
        "\x1b[36m(vLLMHttpServer pid=5, ip=192.0.2.1)\x1b[0m (Worker_TP0 pid=9) INFO x Sleep mode freed 40 GiB memory, 3.5 GiB memory is still in use.",
    ],
)
def test_log_lines_with_and_without_a_process_name(line: str) -> None:
    found = log_of(line, 9)
    assert (found.freed, found.in_use) == (40.0, 3.5)


def test_old_wording_for_the_cache_is_read() -> None:
    line = "weights take 2.98GiB; non_torch_memory takes 0.1GiB; the rest of the memory reserved for KV Cache is 30.25GiB."
    assert log_of(line).cache == 30.25
