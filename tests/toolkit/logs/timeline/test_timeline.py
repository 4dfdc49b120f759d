"""Timeline of a start: facts from lines of vLLM, Ray and verl, and nothing invented."""

from __future__ import annotations

import json
import random
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.running import Doctor

from verl_doctor.toolkit.logs.timeline import reader as timeline_reader
from verl_doctor.toolkit.logs.timeline import render, svg
from verl_doctor.toolkit.logs.timeline.join import timeline
from verl_doctor.toolkit.logs.timeline.phases import LOG_PHASES
from verl_doctor.toolkit.logs.timeline.reader import TimelineReader
from verl_doctor.toolkit.logs.timeline.timeline import Timeline

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


def timeline_of(*logs: str, sources: tuple[str, ...] = ()) -> Timeline:
    """The time line of these logs, read in blocks of a few lines."""
    readers = []
    for at, log in enumerate(logs):
        reader = TimelineReader(sources[at] if sources else f"{at}.log")
        lines = log.encode("utf-8", "surrogateescape").split(b"\n")
        for begin in range(0, len(lines), 3):
            reader.take(begin + 1, b"\n".join(lines[begin : begin + 3]) + b"\n")
        readers.append(reader)
    return timeline(readers)


def phases(line: Timeline, kind: str) -> list[tuple[str, float | None, float | None]]:
    """Phases of the processes of a kind: phase, seconds, begin."""
    return [
        (span.phase, span.seconds and round(span.seconds, 2), span.start and round(span.start, 2))
        for worker in line.workers
        if worker.kind == kind
        for span in worker.spans
    ]


def test_engine_phases_are_read() -> None:
    line = timeline_of(ENGINE)
    found = {phase: (seconds, start) for phase, seconds, start in phases(line, "EngineCore")}
    assert found["start"] == (25.0, 0.0)
    assert found["model"] == (12.2, 27.8)
    assert found["weights"] == (11.5, 27.5)
    assert found["compile"] == (10.22, 40.78)
    assert found["capture"] == (9.0, 54.0)
    assert found["engine"] == (23.39, 40.61)
    assert line.seconds == 64
    assert ("shards", 11.0, None) in phases(line, "driver")  # bars bear no name


def test_nested_phases_are_not_counted_twice() -> None:
    engine = next(worker for worker in timeline_of(ENGINE).workers if worker.kind == "EngineCore")
    assert [span.phase for span in engine.outer] == ["start", "model", "engine"]
    assert engine.seconds == pytest.approx(25 + 12.200673 + 23.39)


def test_each_phase_has_its_lines_as_proof() -> None:
    line = timeline_of(ENGINE)
    engine = next(worker for worker in line.workers if worker.kind == "EngineCore")
    model = next(span for span in engine.spans if span.phase == "model")
    assert [(line.source, line.number) for line in model.proof] == [("0.log", 7)]
    begun = next(span for span in engine.spans if span.phase == "start")
    assert [line.number for line in begun.proof] == [1, 2]


def test_job_from_ray_to_its_first_step() -> None:
    line = timeline_of(GRPO)
    assert phases(line, "driver") == [("ray", 4.5, 0.0)]
    assert phases(line, "TaskRunner") == [("start", 15.5, 4.5), ("step", 70.25, None)]
    assert sorted(phases(line, "WorkerDict")) == [("start", 15.0, 20.0), ("start", 20.0, 20.0)]
    assert {worker.node for worker in line.workers if worker.kind == "WorkerDict"} == {"", "10.0.0.2"}
    step = next(span for worker in line.workers for span in worker.spans if span.phase == "step")
    assert dict(step.parts) == {"gen": 50.5, "update_actor": 9.5}
    assert [(moment.what, moment.at) for moment in line.moments] == [
        ("Ray is up", 4.5),
        ("step 1 was logged", None),
    ]


def stamped(second: float, words: str, who: str = "") -> str:
    """A line of vLLM's at this second of a day."""
    whole = int(second)
    return (
        f"{who}INFO 11-21 {whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d} [core.py:1] {words}\n"
    )


@pytest.mark.parametrize(
    ("line", "phase", "seconds"),
    [
        ("INFO 06-19 23:05:18 [monitor.py:33] torch.compile takes 7.51 s in total", "compile", 7.51),
        ("INFO 06-19 23:05:18 [monitor.py:33] torch.compile takes **7.51 s** in total", "compile", 7.51),
        ("INFO 06-19 23:05:09 [backends.py:120] Directly load the compiled graph(s) for shape None from the cache, took 4.190 s", "graph", 4.19),
        ("INFO 02-12 15:00:36 [backends.py:319] Compiling a graph for compile range (1, 8000) takes 2219.43 s", "graph", 2219.43),
        ("INFO 06-19 23:05:35 [gpu_model_runner.py:1608] Graph capturing finished in 17 secs, took 0.48 GiB", "capture", 17),
        ("INFO 06-19 23:05:35 [core.py:162] init engine (profile, create kv cache, warmup model) took 34.11 seconds", "engine", 34.11),
        ("INFO 06-19 23:05:01 [gpu_model_runner.py:1273] Model loading took 3.4213 GiB and 0.902026 seconds", "model", 0.902026),
        ("INFO 06-19 23:05:01 [weight_utils.py:281] Time spent downloading weights for a/b: 61.500000 seconds", "download", 61.5),
        ("[2026-11-21 10:00:00 TP0] Load weight end. elapsed=9.25 s, type=Qwen2ForCausalLM, dtype=torch.bfloat16", "model", 9.25),
        ("[2026-11-21 10:00:00 TP0] Capture cuda graph end. Time elapsed: 5.50 s. mem usage=1.20 GB.", "capture", 5.5),
        ("Capturing CUDA graph shapes: 100%|##########| 67/67 [01:22<00:00,  1.2s/it]", "capture", 82),
        ("Loading safetensors checkpoint shards: 100% Completed | 4/4 [1:02:03<00:00, 28.7s/it]", "shards", 3723),
        ("Filtering prompts longer than 1024 tokens (num_proc=4): 100%|###| 7473/7473 [00:12<00:00, 8 examples/s]", "data", 12),
    ],
)  # fmt: skip
def test_single_informative_line_suffices(line: str, phase: str, seconds: float) -> None:
    assert [(span.phase, span.seconds, span.is_open) for span in timeline_of(line).workers[0].spans] == [
        (phase, seconds, False)
    ]


def test_sglang_without_logged_seconds() -> None:
    log = "[2026-11-21 10:00:00 TP0] Load weight begin. avail mem=9 GB\n[2026-11-21 10:00:07 TP0] Load weight end. type=Q\n"
    assert phases(timeline_of(log), "TP0") == [("model", 7, 0)]


def test_unfinished_load_took_at_least_the_observed_time() -> None:
    log = stamped(0, "Starting to load model m...", "(Worker pid=5) ")
    log += "Loading safetensors checkpoint shards:  25% Completed | 1/4 [09:40<29:00,  580s/it]\n"
    log += stamped(
        900, "No available shared memory broadcast block found in 60 seconds.", "(EngineCore pid=4) "
    )
    spans = {span.phase: span for worker in timeline_of(log).workers for span in worker.spans}
    assert (spans["model"].seconds, spans["model"].is_open) == (900, True)
    assert (spans["shards"].seconds, spans["shards"].is_open) == (580, True)


def test_unfinished_first_step_is_reported() -> None:
    log = "2026-11-21 10:00:00,000\tINFO x.py:1 -- a\nTraining Progress:   0%|   | 0/9 [00:00<?, ?it/s]\n"
    log += "2026-11-21 10:10:00,000\tINFO x.py:1 -- b\n"
    (step,) = [span for worker in timeline_of(log).workers for span in worker.spans if span.phase == "step"]
    assert (step.seconds, step.is_open) == (None, True)  # the line with which it began has no time


def test_lines_without_times_give_no_duration() -> None:
    log = GRPO.replace("INFO:2026-11-21 ", "INFO:").replace("2026-11-21 ", "")
    log = "\n".join(line for line in log.split("\n") if "INFO" not in line)
    line = timeline_of(log)
    assert (line.seconds, line.has_step) == (None, True)
    assert [span.phase for worker in line.workers for span in worker.spans] == ["step"]


def test_simultaneous_starts_without_times_share_an_unknown_duration() -> None:
    log = stamped(0, "a") + "(TaskRunner pid=2) begins\n(WorkerDict pid=3) begins\n" + stamped(60, "b")
    line = timeline_of(log)
    assert phases(line, "TaskRunner") == phases(line, "WorkerDict") == [("start", None, None)]
    notes = " ".join(render.below(line))
    assert (
        "unknown duration: process starts, imports (TaskRunner), process starts, imports (WorkerDict)"
        in notes
    )


def test_elapsed_seconds_at_the_start_of_lines_are_read() -> None:
    log = "   0.0 + python3 -m verl.trainer.main_ppo x=1\n  12.1 validated\n  12.2 ray init kwargs: {}\n"
    log += "  20.2 Started a local Ray instance.\n  42.2 (TaskRunner pid=5) begins\n"
    line = timeline_of(log)
    assert phases(line, "driver") == [("start", 12.1, 0), ("ray", 8, 12.2)]
    assert phases(line, "TaskRunner") == [("start", 22, 20.2)]


def test_renamed_and_nested_processes_are_matched() -> None:
    log = (
        stamped(0, "a", "(TaskRunner pid=1) ")
        + stamped(9, "b", "(pid=2) ")
        + stamped(9, "c", "(Server pid=2) ")
    )
    log += stamped(30, "d", "(Server pid=2) (EngineCore_DP0 pid=3) ")
    line = timeline_of(log)
    assert phases(line, "Server") == [("start", 9, 0)]
    assert phases(line, "EngineCore") == [("start", 21, 9)]


def test_progress_bar_after_a_process_label_is_read() -> None:
    log = "(Worker_TP0 pid=5) \nLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:07<00:07]\n"
    log += "(Worker_TP0 pid=5) \nLoading safetensors checkpoint shards: 100% Completed | 2/2 [00:15<00:00]\n(Worker_TP0 pid=5) \n"
    log += "Loading checkpoint shards: 100%|###| 2/2 [00:03<00:00]\nLoading checkpoint shards: 100%|###| 2/2 [00:02<00:00]\n"
    line = timeline_of(log)
    assert phases(line, "Worker") == [("shards", 15, None), ("shards", 3, None)]
    assert phases(line, "driver") == [("shards", 2, None)]


def test_clock_and_name_added_by_a_log_collector_are_read() -> None:
    log = "2025-02-22 12:25:00 | my-job-0/pytorch | (LLMActor pid=6, ip=10.4.4.30)  Loading weights took 9.0 seconds [repeated 12x across cluster]\n"
    log += "2025-02-22 12:25:06 | my-job-0/pytorch | (LLMActor pid=6, ip=10.4.4.31)  Loading weights took 12.0 seconds\n"
    assert phases(timeline_of(log), "LLMActor") == [("weights", 9, -9), ("weights", 12, -6)]
    log = "11:31:42.990 (WorkerDict pid=1) [rank5]:[W319 11:31:42.912407157 socket.cpp:462] [c10d] x\n"
    log += "2025-07-02T14:33:26.757255906+08:00 (WorkerDict pid=1) INFO 07-02 06:33:26 [a.py:1] Loading weights took 2.0 seconds\n"
    assert phases(timeline_of(log.split("\n", 1)[1]), "WorkerDict") == [("weights", 2, -2)]


def test_timeline_passes_new_year_and_midnight() -> None:
    log = "INFO 12-31 23:59:50 [a.py:1] a\n(EngineCore pid=3) INFO 01-01 00:00:20 [a.py:1] b\n"
    assert phases(timeline_of(log), "EngineCore") == [("start", 30, 0)]
    log = "[23:59:50] a\n[00:00:20] Load weight begin.\n[00:00:25] Load weight end.\n"
    assert ("model", 5, 30) in phases(timeline_of(log), "driver")


def test_disagreeing_clocks_are_reported_and_not_subtracted() -> None:
    log = stamped(7200, "a", "(TaskRunner pid=1) ") + stamped(3600, "b", "(WorkerDict pid=2, ip=10.0.0.9) ")
    log += stamped(7300, "Loading weights took 5.0 seconds", "(TaskRunner pid=1) ")
    line = timeline_of(log)
    assert [span.phase for worker in line.workers for span in worker.spans] == ["weights"]
    assert "clocks" in line.notes[0]


def test_last_of_several_starts_in_one_log_counts() -> None:
    once = "ray init kwargs: {}\n" + GRPO + "step:2 - timing_s/step:9.0\n" * 300
    again = once + once.replace("70.25", "30.5")
    line = timeline_of(again)
    steps = [span.seconds for worker in line.workers for span in worker.spans if span.phase == "step"]
    assert steps == [30.5]
    assert "2 starts" in line.notes[-1]
    assert again.split("\n")[line.moments[-1].proof.number - 1].endswith("timing_s/step:30.5")


def test_ray_log_files_show_when_a_worker_was_created() -> None:
    core = "[2026-11-21 10:00:02,000 I 40 40] core_worker_process.cc:872: Constructing CoreWorkerProcess. pid: 40\n"
    core += (
        "[2026-11-21 10:00:14,500 I 40 40] task_receiver.cc:117: Actor creation task finished, task_id: ab\n"
    )
    own = ":job_id:01000000\n:actor_name:WorkerDict\n" + stamped(36030, "Loading weights took 2.5 seconds")
    sources = ("s/python-core-worker-0a1b2c3d_40.log", "s/worker-0a1b2c3d4e-01000000-40.err", "s/raylet.out")
    line = timeline_of(core, own, "[2026-11-21 09:00:00,000 I 1 1] (raylet) a.cc:1: x\n", sources=sources)
    assert phases(line, "WorkerDict") == [("start", 12.5, 0), ("weights", 2.5, 25.5)]


def test_many_ranks_share_one_row_of_the_slowest() -> None:
    log = stamped(0, "a", "(TaskRunner pid=1) ")
    for rank in range(64):
        log += stamped(
            20 + rank, f"Loading weights took {10 + rank}.0 seconds", f"(WorkerDict pid={100 + rank}) "
        )
    rows = [row for row in render.text_lines(timeline_of(log), 80) if "WorkerDict x64" in row]
    assert len(rows) == 1
    assert "m 73.0 s" in rows[0]


def test_chart_fits_the_terminal(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(GRPO + ENGINE)
    done = here("logs", "run.log", "--timeline", cwd=tmp_path)
    assert done.returncode == 0
    chart = done.stdout.partition("Where start-up time went")[2]
    assert max(map(len, chart.splitlines())) <= 80
    assert "Ray is up at 4.5 s" in chart
    assert "first step, 70.2 s: gen 50.5 s, update_actor 9.5 s, what verl does not time 10.2 s" in " ".join(
        chart.split()
    )


def test_start_up_time_is_mentioned_in_one_sentence(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(ENGINE)
    done = here("logs", "run.log", cwd=tmp_path)
    assert (
        "start-up took 64.0 s; longest phase: process starts, imports (EngineCore pid=9), 25.0 s (--timeline)"
        in done.stdout
    )
    (tmp_path / "run.log").write_text("INFO 11-21 10:00:00 [a.py:1] all is well\n")
    assert "start-up" not in here("logs", "run.log", cwd=tmp_path).stdout


def test_picture_is_written_and_overwriting_reported(here: Doctor, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(ENGINE)
    first = here("logs", "run.log", "--svg", "start.svg", "--format", "json", cwd=tmp_path)
    again = here("logs", "run.log", "--svg", "start.svg", cwd=tmp_path)
    assert json.loads(first.stdout)["timeline"]["seconds"] == 64
    assert ("is in" in first.stderr, "replaces what was in" in again.stderr) == (True, True)
    drawn = ET.fromstring((tmp_path / "start.svg").read_text())
    titles = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert any("EngineCore pid=9: model loads, 12.2 s (run.log:7)" in title for title in titles)
    (tmp_path / "run.log").write_text("nothing\n")
    assert render.NOTHING in here("logs", "run.log", "--timeline", cwd=tmp_path).stdout
    assert "was not written" in here("logs", "run.log", "--svg", "none.svg", cwd=tmp_path).stderr
    assert not (tmp_path / "none.svg").exists()


def test_nested_process_starts_after_the_last_line_of_its_parent() -> None:
    log = stamped(9, "a", "(Server pid=2) ") + stamped(20, "b", "(TaskRunner pid=1) ")
    log += stamped(30, "c", "(Server pid=2) (EngineCore pid=3) ")
    assert phases(timeline_of(log), "EngineCore") == [("start", 21, 0)]


def test_output_before_a_process_is_named_does_not_shorten_its_start() -> None:
    log = stamped(10, "a", "(Server pid=2) ") + stamped(40, "a warning", "(Server pid=2) ")
    log += stamped(41, "b", "(Server pid=2) (EngineCore pid=3) ")
    line = timeline_of(log)
    assert phases(line, "EngineCore") == [("start", 31, 0)]
    assert phases(line, "Server") == []


def test_server_imports_vllm_before_its_first_log_line() -> None:
    log = "(Server pid=2) INFO:2026-11-21 10:00:00,000:mine\n"
    log += stamped(36040, "first", "(Server pid=2) ") + stamped(36080, "second", "(Server pid=2) ")
    assert phases(timeline_of(log), "Server") == [("start", 40, 0), ("silence", 40, 40)]


def test_unlabelled_lines_are_not_a_starting_process() -> None:
    log = stamped(0, "a", "(MainProcess pid=2) ") + stamped(50, "b") + stamped(60, "c", "(EngineCore pid=3) ")
    line = timeline_of(log)
    assert phases(line, "EngineCore") == [("start", 60, 0)]
    assert phases(line, "driver") == []


def test_later_phase_ends_an_open_load() -> None:
    log = stamped(0, "Starting to load model m...") + stamped(9, "Loading weights took 8.0 seconds")
    assert phases(timeline_of(log), "driver") == [("weights", 8, 1)]


def test_work_after_the_engine_is_ready_is_not_part_of_its_start() -> None:
    line = timeline_of(ENGINE + stamped(19 * 3600 + 40 * 60, "a request", "(EngineCore pid=9) "))
    assert line.seconds == 64
    assert "silence" not in [
        span.phase for worker in line.workers for span in worker.spans if span.seconds != 2
    ]


def test_logs_with_separate_elapsed_clocks_are_not_aligned() -> None:
    line = timeline_of(
        "0.5 a\n9.0 Loading weights took 3.0 seconds\n", "0.5 b\n30.0 Graph capturing finished in 4 secs\n"
    )
    assert phases(line, "driver") == [
        ("silence", 8.5, 0),
        ("weights", 3, 5.5),
        ("capture", 4, None),
        ("silence", 29.5, None),
    ]


def test_reduced_vllm_log_level_is_mentioned_if_it_hides_something() -> None:
    quiet = "ray init kwargs: {'runtime_env': {'env_vars': {'VLLM_LOGGING_LEVEL': 'WARN'}}}\n"
    assert "VLLM_LOGGING_LEVEL=INFO" in timeline_of(quiet + GRPO).notes[0]
    assert timeline_of(quiet + GRPO.replace("saved", "Loading weights took 3.0 seconds")).notes == ()


def test_parallel_phases_count_once() -> None:
    line = timeline_of(GRPO)
    assert (
        line.together("start") == 35.5
    )  # the task runner's 15.5 seconds, and 20 in which both workers started


PIECES = (
    "INFO 99-99 99:99:99 [a.py:1] x", "INFO 02-29 23:59:60 [a.py:1] x", "2026-11-21 10:00:0", "99999999999.9 x", "-5.5 x", "[::] x",
    "INFO 11-21 10:00:00 [a.py:1] Loading weights took 999999999.999999999 seconds", "(A pid=1) " * 9, "(pid=", "\x00\x1b[31m\xff", "0.1 a",
    "Loading weights took nan seconds", "Loading weights took -1 seconds", "step:1 - timing_s/step:1e99", "step:1 - timing_s/step:1e-05",
    "Training Progress:   0%|", "Capturing CUDA graphs: 100%|x| [99:99<00:00", "ray init kwargs: ", "Connected to Ray cluster.", "\r\r\r",
    "2026-11-21T10:00:00.123456789Z x", "Nov 31 25:00:00 n1 x", "Nov 21 10:00:00 n1 x", "(WorkerDict pid=2, ip=fe80::1) INFO 11-20 09:00:00 [a.py:1] y",
    "[rank0]:[W1121 10:00:00.1 a.cpp:1] z", "23:59:59 a", "00:00:01 b", "Graph capturing finished in 3 secs", *ENGINE.splitlines(), *GRPO.splitlines(),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_times_are_consistent_for_any_log(seed: int) -> None:
    chance = random.Random(seed)
    log = "\n".join(
        "".join(chance.choices(PIECES, k=chance.choice((1, 1, 2)))) for _ in range(chance.randrange(1, 80))
    )
    line = timeline_of(log, *([log[::-1]] if seed % 5 == 0 else []))
    for worker in line.workers:
        assert worker.spans
        for span in worker.spans:
            assert span.phase in LOG_PHASES
            assert span.seconds is None or 0 <= span.seconds < 1e10
            assert span.proof
            assert all(1 <= proof.number <= log.count("\n") + 1 for proof in span.proof)
            if span.how == "silence" and span.start is not None:
                assert span.start >= 0
    assert max((len(row) for row in render.text_lines(line, 80)), default=0) <= 80
    list(render.markdown_lines(line))
    ET.fromstring(svg.picture(line))


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, most in (("_PROCESSES", 20), ("_SPANS", 30), ("_LINES", 100)):
        monkeypatch.setattr(timeline_reader, name, most)
    lines = (stamped(2 * at, "Loading weights took 1.0 seconds", f"(W{at} pid={at}) ") for at in range(200))
    line = timeline_of("".join(lines))
    assert len(line.workers) <= 20
    assert sum(len(worker.spans) for worker in line.workers) <= 30
    assert "too long" in line.notes[0]
