"""Messages after the end of a training, and earlier ones that it survived, are not failures; another run in the log may still fail."""

from __future__ import annotations

import io

import pytest
from support.logs.builder import spoken, traceback

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.diagnosis import Reading, read
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.headline import headline
from verl_doctor.toolkit.logs.python_errors import OVERRIDES

RUNNER = "(TaskRunner pid=7131) "
STEP = f"{RUNNER}step:1 - actor/loss:0.1 - timing_s/step:9.5\n"
DONE = f"{STEP}{RUNNER}'Final validation metrics: None'\n"
KILLED = "RuntimeError: DataLoader worker (pid 8859) is killed by signal: Killed."
TORN_DOWN = spoken(traceback(KILLED), RUNNER)
FULL = spoken(traceback("OSError: [Errno 28] No space left on device"), RUNNER)
CONNECTS = "ray init kwargs: {}\n"
PADDING = f"{RUNNER}fine\n" * 20_000


def judged(text: str) -> Reading:
    return read(excerpt(io.BytesIO(text.encode()).read).lines, "run.log")


@pytest.mark.parametrize("between", ["", PADDING])
def test_messages_during_teardown_are_not_the_cause(between: str) -> None:
    found = judged(f"{DONE}{between}{TORN_DOWN}{between}")
    assert (found.causes, found.error, found.consequences, found.also) == ((), None, (), ())
    assert [hint.words.startswith(KILLED) for hint in found.hints] == [True]


@pytest.mark.parametrize(
    "text",
    [
        f"{STEP}{TORN_DOWN}",
        f"{CONNECTS}{TORN_DOWN}{CONNECTS}{DONE}",
        f"{CONNECTS}{OVERRIDES}[]\n{traceback(KILLED)}{CONNECTS}{DONE}",
        DONE + spoken(traceback(KILLED), "(TaskRunner pid=9) "),
        DONE + traceback(KILLED),
        f"{DONE}{PADDING}ray init kwargs: {{}}\n{PADDING}{TORN_DOWN}",
        f"{DONE}{RUNNER}Training Progress:  10%|#     | 1/10\n{TORN_DOWN}",
    ],
)
def test_other_error_before_teardown_is_still_the_first(text: str) -> None:
    first = judged(text).first
    assert first is not None
    assert first.words.startswith(KILLED)


def test_error_before_a_successful_end_is_a_note() -> None:
    missing = spoken(traceback("ImportError: cannot import name 'a' from 'vllm.b'"), RUNNER)
    for text in (f"{FULL}{DONE}{TORN_DOWN}", f"{TORN_DOWN}{DONE}", f"{CONNECTS}{STEP}{missing}{DONE}"):
        answer = Answer(judged(text), ("run.log",), len(text))
        assert (headline(answer)[0], answer.verdict, answer.exit_code) == ("OK", "ok", 0)
        assert "stopped it" in headline(answer)[1]
        assert answer.reading.hints


def test_earlier_failed_run_in_the_same_log_is_still_named() -> None:
    failed = f"{CONNECTS}{OVERRIDES}[]\n{traceback('OSError: [Errno 28] No space left on device')}"
    (cause,) = judged(f"{failed}{CONNECTS}{DONE}").causes
    assert cause.signature is not None
    assert cause.signature.code == "HOST106"


ENGINE, SERVER = "(EngineCore pid=23) ", "(APIServer pid=21) "
SERVES = f"{ENGINE}INFO 11-01 21:08:52 [loader.py:430] Loading weights took 570.62 seconds\n{SERVER}INFO:     Application startup complete.\n"
ASKED = f"{ENGINE}INFO 11-01 21:34:51 [core.py:1214] [shutdown] EngineCore: trigger received signal=SIGTERM\n"
DEAD = f"{SERVER}ERROR 11-01 21:34:51 [async_llm.py:704] AsyncLLM output_handler failed.\n{spoken(traceback('vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.'), SERVER)}"


def test_server_that_was_asked_to_stop_did_not_fail() -> None:
    found = judged(f"{SERVES}{ASKED}{DEAD}")
    assert (found.causes, found.error, found.consequences) == ((), None, ())
    assert judged(f"{SERVES}{DEAD}{ASKED}").error is not None


def test_another_process_still_fails_beside_a_server_that_was_asked_to_stop() -> None:
    found = judged(f"{SERVES}{ASKED}{DEAD}{FULL}")
    assert found.first is not None
    assert "No space left" in found.first.words


def test_server_that_was_started_again_fails_by_itself() -> None:
    again = "(EngineCore pid=43) "
    failed = spoken(traceback("OSError: [Errno 28] No space left on device"), again)
    found = judged(f"{SERVES}{ASKED}{DEAD}{again}INFO starts\n{failed}")
    assert found.first is not None
    assert "No space left" in found.first.words
