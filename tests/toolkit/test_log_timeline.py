"""The time line of a start: what lines of vLLM, Ray and verl tell of it, and that nothing is made up where they tell nothing."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.log_timeline import Timeline
from verl_doctor.toolkit.log_timeline_reader import TimelineReader, timeline

ENGINE = """\
(MainProcess pid=7) INFO 11-21 19:29:42 [api_utils.py:273] non-default args: {'model': 'm'}
(EngineCore pid=9) INFO 11-21 19:30:07 [core.py:114] Initializing a V1 LLM engine (v0.24.0) with config: model='m'
(EngineCore pid=9) INFO 11-21 19:30:09 [gpu_model_runner.py:5160] Starting to load model m...
Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:05<00:05,  2.5s/it]
Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:11<00:00,  2.8s/it]
(EngineCore pid=9) INFO 11-21 19:30:21 [default_loader.py:430] Loading weights took 11.50 seconds
(EngineCore pid=9) INFO 11-21 19:30:22 [gpu_model_runner.py:5255] Model loading took 14.2 GiB memory and 12.200673 seconds
(EngineCore pid=9) INFO 11-21 19:30:25 [backends.py:1148] Dynamo bytecode transform time: 2.13 s
(EngineCore pid=9) INFO 11-21 19:30:33 [monitor.py:53] torch.compile took 10.22 s in total
(EngineCore pid=9) INFO 11-21 19:30:45 [gpu_model_runner.py:6656] Graph capturing finished in 9 secs, took 0.08 GiB
(EngineCore pid=9) INFO 11-21 19:30:46 [core.py:337] init engine (profile, create kv cache, warmup model) took 23.39 s (compilation: 10.22 s)
"""
GRPO = """\
2026-11-21 10:00:00,000\tINFO launch.py:1 -- Connecting to existing Ray cluster at address: 10.0.0.1:6379...
2026-11-21 10:00:04,500\tINFO worker.py:2029 -- Connected to Ray cluster. View the dashboard at http://127.0.0.1:8265
\x1b[36m(TaskRunner pid=20)\x1b[0m INFO:2026-11-21 10:00:20,000:train and validate dataloader initialized
\x1b[36m(WorkerDict pid=30, ip=10.0.0.2)\x1b[0m INFO:2026-11-21 10:00:35,000:rank 1 begins
\x1b[36m(WorkerDict pid=30)\x1b[0m INFO:2026-11-21 10:00:40,000:rank 0 begins
\x1b[36m(TaskRunner pid=20)\x1b[0m Training Progress:   0%|          | 0/9 [00:00<?, ?it/s]
\x1b[36m(TaskRunner pid=20)\x1b[0m INFO:2026-11-21 10:02:00,000:saved
\x1b[36m(TaskRunner pid=20)\x1b[0m step:1 - actor/pg_loss:0.1 - timing_s/gen:50.5 - timing_s/update_actor:9.5 - timing_s/step:70.25
"""


def told(*logs: str, sources: tuple[str, ...] = ()) -> Timeline:
    """The time line of these logs, read in blocks of a few lines."""
    readers = []
    for at, log in enumerate(logs):
        reader = TimelineReader(sources[at] if sources else f"{at}.log")
        lines = log.encode().splitlines(keepends=True)
        for begin in range(0, len(lines), 3):
            reader.take(begin + 1, b"".join(lines[begin : begin + 3]))
        readers.append(reader)
    return timeline(readers)


def phases(line: Timeline, kind: str) -> list[tuple[str, float | None, float | None]]:
    """What the processes of a kind did: phase, seconds, begin."""
    return [
        (one.phase, one.seconds and round(one.seconds, 2), one.start and round(one.start, 2))
        for worker in line.workers
        if worker.kind == kind
        for one in worker.spans
    ]


def test_an_engine_tells_what_it_did() -> None:
    line = told(ENGINE)
    found = {phase: (seconds, start) for phase, seconds, start in phases(line, "EngineCore")}
    assert found["start"] == (25.0, 0.0)
    assert found["model"] == (12.2, 27.8)
    assert found["weights"] == (11.5, 27.5)
    assert found["compile"] == (10.22, 40.78)
    assert found["capture"] == (9.0, 54.0)
    assert found["engine"] == (23.39, 40.61)
    assert line.seconds == 64
    assert ("shards", 11.0, None) in phases(line, "driver")  # bars bear no name


def test_parts_do_not_count_beside_the_whole() -> None:
    engine = next(one for one in told(ENGINE).workers if one.kind == "EngineCore")
    assert [one.phase for one in engine.outer] == ["start", "model", "engine"]
    assert engine.seconds == pytest.approx(25 + 12.200673 + 23.39)


def test_each_phase_is_proved_by_its_lines() -> None:
    line = told(ENGINE)
    engine = next(one for one in line.workers if one.kind == "EngineCore")
    model = next(one for one in engine.spans if one.phase == "model")
    assert [(one.source, one.number) for one in model.proof] == [("0.log", 7)]
    begun = next(one for one in engine.spans if one.phase == "start")
    assert [one.number for one in begun.proof] == [1, 2]


def test_a_job_from_ray_to_its_first_step() -> None:
    line = told(GRPO)
    assert phases(line, "driver") == [("ray", 4.5, 0.0)]
    assert phases(line, "TaskRunner") == [("start", 15.5, 4.5), ("step", 70.25, None)]
    assert sorted(phases(line, "WorkerDict")) == [("start", 15.0, 20.0), ("start", 20.0, 20.0)]
    assert {one.node for one in line.workers if one.kind == "WorkerDict"} == {"", "10.0.0.2"}
    step = next(one for worker in line.workers for one in worker.spans if one.phase == "step")
    assert dict(step.parts) == {"gen": 50.5, "update_actor": 9.5}
    assert [(one.what, one.at) for one in line.moments] == [("Ray is up", 4.5), ("step 1 was logged", None)]
