"""Which of several exceptions is taken, and that no more of them are judged than it needs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.logs.builder import spoken, traceback

from verl_doctor.toolkit.logs import reported
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.first_cause import Cause
from verl_doctor.toolkit.logs.lines import Line, log_lines
from verl_doctor.toolkit.logs.python_errors import Raised

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
FILES = "OSError: [Errno 24] Too many open files"
UNKNOWN = "JudgeError: no"
DIED = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of each exception that is judged, in the order in which that happens."""
    words: list[str] = []
    cause_of = reported.cause_of

    def counted(one: Raised, lines: Sequence[Line]) -> Cause:
        words.append(one.words)
        return cause_of(one, lines)

    monkeypatch.setattr(reported, "cause_of", counted)
    return words


HYDRA = (
    'Traceback (most recent call last):\n  File "/venv/lib/python3.11/site-packages/hydra/core/parser.py", line 96, in parse_overrides\n'
    "hydra.errors.OverrideParseException: LexerNoViableAltException: \n"
)


@pytest.mark.parametrize(
    ("log", "code"),
    [
        (f"run.sh: line 2: set: -\r: invalid option\n{HYDRA}run.sh: line 4: trainer.nnodes=1: command not found\n", "CFG107"),
        (f"{HYDRA}run.sh: line 9: $'\\r': command not found\n", "CFG107"),
        (f"{HYDRA}run.sh: line 4: trainer.nnodes=1: command not found\n", "CFG103"),
    ],
)  # fmt: skip
def test_line_ends_of_a_script_are_behind_what_its_words_cause(log: str, code: str) -> None:
    first = read(list(log_lines(log)), "run.log").first
    assert first is not None
    assert first.signature is not None
    assert first.signature.code == code


def first_cause(log: str) -> str:
    """The named cause, or else the text of the error."""
    reading = read(list(log_lines(log)), "run.log")
    if reading.causes:
        return reading.causes[0].words
    return reading.error.words if reading.error is not None else ""


@pytest.mark.parametrize(
    ("errors", "taken", "looked_at"),
    [
        ([UNKNOWN, MEMORY, *[UNKNOWN] * 3], MEMORY.partition(".")[2], 4),
        ([MEMORY, *[UNKNOWN] * 200, FILES], FILES, 1),
        ([UNKNOWN, UNKNOWN], UNKNOWN, 2),
    ],
)
def test_errors_without_tracebacks_are_judged_from_the_last(
    errors: list[str], taken: str, looked_at: int, judged: list[str]
) -> None:
    assert first_cause("".join(f"{error}\n\n" for error in errors)) == taken
    assert len(judged) == looked_at


@pytest.mark.parametrize(
    ("errors", "taken", "looked_at"),
    [
        ((FILES, MEMORY), FILES, 1),
        ((UNKNOWN, FILES, MEMORY), FILES, 2),
        ((UNKNOWN, DIED, FILES), FILES, 3),
        ((UNKNOWN, DIED), UNKNOWN, 2),
    ],
)
def test_innermost_known_error_of_a_chain_is_taken(
    errors: Sequence[str], taken: str, looked_at: int, judged: list[str]
) -> None:
    joint = "\nThe above exception was the direct cause of the following exception:\n\n"
    assert first_cause(joint.join(traceback(error) for error in errors)) == taken
    assert len(judged) == looked_at + 1  # and once the error that ended the run


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ("500 Server Error: Internal Server Error", "IndexError"),
        ("500 Server Error: Internal Server Error for url: http://10.0.0.1:8000/search", "IndexError"),
        ("500 Server Error: Internal Server Error for url: https://api.wandb.ai/graphql", "HTTPError"),
        ("404 Client Error: Not Found", "HTTPError"),
    ],
)
def test_error_of_a_server_counts_although_its_client_reports_a_known_one(status: str, cause: str) -> None:
    server = spoken(
        traceback("IndexError: list index out of range", place="/src/own/search.py"), "(Server pid=7) "
    )
    client = spoken(traceback(f"requests.exceptions.HTTPError: {status}"), "(Client pid=9) ")
    assert first_cause(server + client).startswith(cause)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        # a worker's error, as reported by the process that waited for it
        ([traceback("RuntimeError: Worker failed with error 'CUDA error: no kernel image is available'")], "no kernel image"),
        # the compiler's own line, before its caller's exception
        (["/x/a.cuh:2:10: fatal error: cuda_fp8.h: No such file or directory\n", traceback("RuntimeError: Ninja build failed. Ninja output:")], "cuda_fp8.h"),
        # the last warning of NCCL, where the exception gives no reason
        (["n:1:2 [0] misc/a.cc:1 NCCL WARN the cable is broken\n", traceback("RuntimeError: NCCL Error 2: unhandled system error")], "the cable is broken"),
        # an exception that refers to another one
        (["[E socket.cpp:1] [c10d] The client socket has timed out after 60s while trying to connect to (10.0.0.1, 1).\n", "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed. See inner exception for details.\n"], "client socket has timed out"),
    ],
)  # fmt: skip
def test_reason_is_named_before_its_consequences(lines: list[str], words: str) -> None:
    assert words in first_cause("".join(lines))


def test_abort_after_a_collective_timeout_is_not_a_crash() -> None:
    log = (
        "[rank5]:[E602 11:17:52.1 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n"
        "E0602 11:18:10.1 9911 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 5 (pid: 9)\n"
    )
    reading = read(list(log_lines(log)), "run.log")
    assert reading.causes == ()
    assert "Watchdog caught" in reading.consequences[0].words


def test_unrelated_nccl_warning_does_not_explain_a_timeout() -> None:
    log = (
        "n:1:2 [0] misc/odd.cc:200 NCCL WARN something odd\n"
        "[rank5]:[E602 11:17:52.1 ProcessGroupNCCL.cpp:632] [Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n"
    )
    assert read(list(log_lines(log)), "run.log").causes == ()


RELAYED = "2026-11-20 10:00:00,123 - launcher - INFO - "


def test_traceback_relayed_line_by_line_ends_the_relayed_run() -> None:
    passed_on = "".join(
        f"{RELAYED}{line}\n" for line in f"step one\n{traceback(FILES)}".splitlines() if line.strip()
    )
    assert first_cause(passed_on) == FILES
    survived = (
        f"{passed_on}{RELAYED}step:1 - loss: 0.1\n{RELAYED}step:2 - loss: 0.1\n{RELAYED}step:3 - loss: 0.1\n"
    )
    assert first_cause(survived) == ""
    assert first_cause(f"{passed_on}{traceback(UNKNOWN)}") == UNKNOWN
    as_one_message = f"{RELAYED}this failed, another way is taken\n{traceback(FILES)}"
    assert first_cause(as_one_message) == FILES


def test_compiler_output_after_the_exception_explains_it() -> None:
    failed = traceback("torch._inductor.exc.InductorError: CppCompileError: C++ compile error")
    output = "\n\nCommand:\ng++ a.cpp\n\nOutput:\n/usr/include/a.h:2:10: fatal error: stddef.h: No such file or directory\n"
    assert "stddef.h" in first_cause(failed + output)
    assert "stddef.h" not in first_cause(traceback(UNKNOWN) + output)


def test_exception_quoting_an_earlier_one_is_not_the_first() -> None:
    inner = "AttributeError: the layer of the adapter has no weight"
    outer = traceback(f"Exception: request 7 failed: {inner.partition(': ')[2]}")
    assert first_cause(f"{traceback(inner)}\nnext line of the log\n{outer}") == inner
    assert first_cause(outer).startswith("Exception: request 7 failed")


def test_continuation_lines_of_a_message_belong_to_its_frame() -> None:
    place = "/env/lib/python3.10/site-packages/trl/trainer/dpo_trainer.py"
    lost = "cannot import name 'MAPPING' from 'transformers.models.auto' (/env/lib/python3.10/site-packages/transformers/a.py)"
    log = f"""Traceback (most recent call last):
  File "{place}", line 41, in <module>
    from transformers.models.auto import MAPPING
ImportError: {lost}

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/job/swift/rlhf.py", line 7, in <module>
    main()
RuntimeError: Failed to import trl.trainer.dpo_trainer because of the following error (look up to see its traceback):
{lost}
"""
    assert first_cause(log).startswith("ImportError: ")


@pytest.mark.parametrize(
    ("outer", "words"),
    [
        (
            "RuntimeError: Unsloth: Please file a bug report! Error patching SFTTrainer",
            "RuntimeError: Unsloth",
        ),
        ("ZeroDivisionError: division by zero", "NameError: name"),
    ],
)
def test_exception_that_explains_a_general_one_is_taken(outer: str, words: str) -> None:
    handled = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert first_cause(
        traceback("builtins.NameError: name 'x' is not defined") + handled + traceback(f"builtins.{outer}")
    ).startswith(words)


SHELL = "CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.\n"
LIMIT = "slurmstepd: error: *** JOB 4242 ON node7 CANCELLED AT 2026-11-20T10:00:00 DUE TO TIME LIMIT ***\n"


def test_hint_counts_unless_the_job_was_ended_after_it() -> None:
    for log, expected in ((SHELL, "LOG151"), (f"{SHELL}fine\n{LIMIT}", "LOG250")):
        signature = read(list(log_lines(log)), "run.log").causes[0].signature
        assert signature is not None
        assert signature.code == expected
