"""Process of a log line, and meaning of Ray's log file names."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.logs.lines import read_line
from verl_doctor.toolkit.logs.timeline.speakers import LogFile, file_of, kind_of, labels_of, printer_of


@pytest.mark.parametrize(
    ("line", "key", "kind", "parent"),
    [
        ("\x1b[36m(WorkerDict pid=7, ip=10.0.0.2)\x1b[0m x", ("10.0.0.2", "7"), "WorkerDict", None),
        ("(Server pid=7) (EngineCore_DP0 pid=8) INFO 11-21 10:00:07 [a.py:1] x", ("", "8"), "EngineCore", ("", "7")),
        ("(Server pid=7) W1121 10:00:07.100000 9 torch/a.py:1] x", ("", "9"), "pid=9", ("", "7")),
        ("(WorkerDict pid=7) [rank0]:[W1121 10:00:07.1 a.cpp:1] x", ("", "7"), "WorkerDict", None),
        ("2025-02-22 12:25:00 | n/p | (LLMActor pid=6, ip=10.4.4.30)  x", ("10.4.4.30", "6"), "LLMActor", None),
        ("[rank3]: x", ("", "rank3"), "rank3", None),
        ("10.0.0.7: [rank3]: x", ("", "rank3"), "rank3", None),
        ("10.0.0.7: x", ("", "10.0.0.7"), "10.0.0.7", None),
        ("[pod/head-0/trainer] x", ("", "head-0/trainer"), "head-0/trainer", None),
        ("[pod/head-0/trainer] (WorkerDict pid=7) x", ("", "7"), "WorkerDict", None),
        ("(pid=7) x", ("", "7"), "pid=7", None),
("it was said that (pid=7) has died", ("", "driver"), "driver", None),
        ("ray::WorkerDict.init() (pid=7, ip=10.0.0.2)", ("", "driver"), "driver", None),
        ("x", ("", "driver"), "driver", None),
    ],
)  # fmt: skip
def test_process_of_a_line_is_read(
    line: str, key: tuple[str, str], kind: str, parent: tuple[str, str] | None
) -> None:
    (read,) = read_line(1, line)
    found = printer_of(read, labels_of(read))
    assert (found.key, kind_of(found.name), found.parent) == (key, kind, parent)


@pytest.mark.parametrize("number", ["   118\t", "1234567\t"], ids=["cat -n", "many lines"])
def test_line_number_is_not_part_of_the_text(number: str) -> None:
    (read,) = read_line(1, f'{number}(WorkerDict pid=7)   File "a.py", line 3')
    assert (read.process, read.text) == ("WorkerDict pid=7", '  File "a.py", line 3')


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("VllmWorker-0 pid=3", "VllmWorker"),
        ("Worker_DP0_TP1_EP3 pid=3", "Worker"),
        ("VllmWorker rank=0 pid=3", "VllmWorker"),
        ("AgentLoopWorkerTQ pid=3", "AgentLoopWorkerTQ"),
        ("TaskRunnerV1 pid=3", "TaskRunnerV1"),
    ],
)
def test_ranks_have_one_kind(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a/worker-0a1b2c3d4e5f-01000000-29821.err", LogFile(worker="worker pid=29821")),
        ("python-core-worker-0a1b2c_29821.log", LogFile(core="29821")),
        ("logs/raylet.out", LogFile(is_of_ray=True)),
        ("gcs_server.out", LogFile(is_of_ray=True)),
        ("train.log", LogFile()),
        ("worker-3.log", LogFile()),
    ],
)
def test_ray_log_files_are_recognised(path: str, found: LogFile) -> None:
    assert file_of(path) == found
