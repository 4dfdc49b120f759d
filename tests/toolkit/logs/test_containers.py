"""Logs within other logs: whatever collected, quoted or printed a log, its verdict stays the same."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from io import BytesIO

import pytest

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.causes import name_of
from verl_doctor.toolkit.logs.diagnosis import read, together
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.headline import headline
from verl_doctor.toolkit.logs.lines import log_lines, without_collected_levels

FAILED = """\
(TaskRunner pid=811) + python3 -m verl.trainer.main_ppo trainer.nnodes=1
INFO 11-20 12:00:01 [core.py:10] Initializing an engine "as usual"
(WorkerDict pid=5521, ip=10.0.0.3) Traceback (most recent call last):
(WorkerDict pid=5521, ip=10.0.0.3)   File "/venv/lib/python3.11/site-packages/verl/workers/engine.py", line 20, in load
(WorkerDict pid=5521, ip=10.0.0.3)     import flash_attn
(WorkerDict pid=5521, ip=10.0.0.3) ModuleNotFoundError: No module named 'flash_attn'
Error executing job with overrides: ['trainer.nnodes=1']
Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/verl/trainer/main_ppo.py", line 40, in main
    run_ppo(config)
ray.exceptions.RayTaskError(ModuleNotFoundError): ray::WorkerDict.load() (pid=5521, ip=10.0.0.3)
"""
HEALTHY = (
    "".join(
        f"(TaskRunnerV1 pid=29101) step:{step} - actor/loss:0.{step} - critic/score/mean:0.5\n"
        for step in range(1, 30)
    )
    + """\
(TaskRunnerV1 pid=29101) Final validation metrics: {'val/acc': 0.4}
(TaskRunnerV1 pid=29101) Traceback (most recent call last):
(TaskRunnerV1 pid=29101)   File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/signal_handling.py", line 73, in handler
(TaskRunnerV1 pid=29101)     _error_if_any_worker_fails()
(TaskRunnerV1 pid=29101) RuntimeError: DataLoader worker (pid 29473) is killed by signal: Killed.
"""
)


def by_line(form: Callable[[int, str], str]) -> Callable[[str], str]:
    return lambda text: "".join(f"{form(at, line)}\n" for at, line in enumerate(text.splitlines(), 1))


WRAPPED = {
    "as it is": lambda text: text,
    "a node's name": by_line(lambda at, line: f"gpu-node-03: {line}"),
    "milliseconds": by_line(lambda at, line: f"17417112{at:05d}\t{line}"),
    "labels of a collector": by_line(lambda at, line: f'{{"app":"trainer"}} 2026-03-11T16:42:{at % 60:02d}Z {line}'),
    "a counter": by_line(lambda at, line: f"{at}: {line}"),
    "a table": by_line(lambda at, line: f"  |   | 2026-03-11 16:42:{at % 60:02d}.491 | {line} |  "),
    "a box": by_line(lambda at, line: f"\u2502 {line:<120} \u2502"),
    "colours of syslog": by_line(lambda at, line: f"Nov 29 10:00:00 node1 trainer[812]: #033[36m{line}#033[0m"),
    "a launcher's logger": by_line(
        lambda at, line: f"[2026-03-11 16:42:{at % 60:02d},123][trainer.launch][INFO] - [stderr] {line}"
    ),
    "quoted fields": by_line(
        lambda at, line: '"2026-03-11 16:42:01","worker-0","{}"'.format(line.replace('"', '""'))
    ),
    "logfmt": by_line(lambda at, line: f'main-0: time="2026-03-11T16:42:01Z" level=info msg={json.dumps(line)}'),
    "JSON": by_line(lambda at, line: json.dumps({"level": "info", "message": line})),
    "HTML": lambda text: html.escape(text).replace("\n", "<br>\n"),
}  # fmt: skip
ESCAPED = {
    "the repr of a text": lambda text: f"the job printed {text!r}\n",
    "the repr of bytes": lambda text: f"CalledProcessError: stderr={text.encode()!r}\n",
    "a text of JSON": lambda text: f"the job printed {json.dumps(text)}\n",
}


def verdict(log: str) -> tuple[str, int, str]:
    found = excerpt(BytesIO(log.encode()).read)
    reading = together({"run.log": read(found.lines, "run.log")})
    answer = Answer(reading, ("run.log",), found.size)
    code = name_of(reading.first)[0] if reading.first is not None else ""
    return headline(answer)[0], int(answer.exit_code), code


@pytest.mark.parametrize("container", [*WRAPPED, *ESCAPED])
def test_failed_job_is_found_within_another_log(container: str) -> None:
    wrap = WRAPPED.get(container) or ESCAPED[container]
    assert verdict(wrap(FAILED)) == ("FIRST CAUSE", 1, "LOG102")


@pytest.mark.parametrize("container", WRAPPED)
def test_finished_job_stays_finished_within_another_log(container: str) -> None:
    assert verdict(WRAPPED[container](HEALTHY)) == ("OK", 0, "")


def test_level_counts_if_a_collector_distinguishes() -> None:
    levels = ["info", "info", "info", "error"]
    lines = list(log_lines("".join(f'{{"level":"{level}","message":"it is {level}"}}\n' for level in levels)))
    assert [line.level for line in without_collected_levels(lines)] == ["INFO", "INFO", "INFO", "ERROR", ""]
    assert [line.level for line in without_collected_levels(lines[:3])] == ["", "", ""]
    assert [line.level for line in without_collected_levels(lines[:1])] == ["INFO"]


def test_level_that_divides_a_traceback_does_not_count() -> None:
    texts = {
        "Traceback (most recent call last):": "error",
        '  File "/w/a.py", line 1, in run': "info",
        "ValueError: no": "error",
    }
    log = "".join(json.dumps({"level": level, "msg": text}) + "\n" for text, level in texts.items())
    assert [line.level for line in without_collected_levels(list(log_lines(log)))] == ["", "", "", ""]


def test_level_around_lines_with_labels_of_their_own_does_not_count() -> None:
    log = 'level=error msg="[rank1]: step 1"\nlevel=info msg="it failed"\n'
    assert {line.level for line in without_collected_levels(list(log_lines(log)))} == {""}


RETRIED = '{"level":"warning","event":"RuntimeError: tool failed; retrying"}\n'
STEPS = "".join(f"(TaskRunner pid=7) step:{step} - actor/loss:0.1\n" for step in range(1, 4))
LAUNCHED = "INFO:launcher:(Worker pid={}) ConnectionError: refused, will retry\n"


@pytest.mark.parametrize(
    "log",
    [
        f"start\n{RETRIED}all done\n",
        f"start\n{RETRIED * 4}all done\n",
        f"{STEPS}{RETRIED}all done\n",
        f"{STEPS}{RETRIED * 4}",
        f"start\n{RETRIED.replace('Runtime', '[rank0] Runtime') * 2}all done\n",
        f"start\n{RETRIED.replace('warning', 'info') * 4}all done\n",
    ],
)
def test_level_of_a_program_that_writes_some_lines_as_json_counts(log: str) -> None:
    assert verdict(log) == ("OK", 0, "")


@pytest.mark.parametrize("key", ["body", "content", "text", "line", "raw"])
@pytest.mark.parametrize("more", [{"score": 0}, {"level": "Level 5"}])
def test_text_in_rows_of_data_is_no_log(key: str, more: dict[str, object]) -> None:
    row = {"id": 1, key: "ConnectionError: refused", **more}
    assert verdict(f"{json.dumps(row)}\n" * 3 + "wrote 3 samples\n") == ("OK", 0, "")
    record = {"time": "2026-11-20T10:00:00Z", key: "ConnectionError: refused"}
    assert verdict(f"{json.dumps(record)}\n" * 3)[1] == 1


def test_process_named_in_a_launchers_messages_leaves_its_level() -> None:
    for processes in ([3] * 4, [3, 4, 3, 4], [3]):
        log = "".join(map(LAUNCHED.format, processes)) + "INFO:launcher:waiting\nINFO:launcher:finished\n"
        assert verdict(log) == ("OK", 0, "")
    assert verdict("INFO:launcher:Traceback (most recent call last): ...\n" + log) == ("OK", 0, "")


def test_traceback_that_a_launcher_relays_line_by_line_takes_its_level() -> None:
    relayed = "".join(f"INFO:launcher:{line}\n" for line in FAILED.splitlines())
    assert verdict(relayed) == ("FIRST CAUSE", 1, "LOG102")


@pytest.mark.parametrize("level", ["info", "warn", "debug"])
@pytest.mark.parametrize("key", ["msg", "line", "content", "MESSAGE"])
def test_last_line_of_a_failed_program_counts_in_any_container(level: str, key: str) -> None:
    texts = ["start", "step 1", "srun: error: node1: task 0: Out Of Memory"]
    assert verdict("".join(json.dumps({"level": level, key: text}) + "\n" for text in texts))[1] == 1


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ('say "msg="', 'say "msg="'),
        ('a=1 msg="unfinished', 'a=1 msg="unfinished'),
        ('"one","two', '"one","two'),
        ("a & b", "a & b"),
        ("\u2502", "\u2502"),
    ],
)
def test_what_only_looks_like_a_container_is_kept(raw: str, text: str) -> None:
    assert [line.text for line in log_lines(raw)] == [text]
