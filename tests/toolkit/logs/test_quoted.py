"""Text quoted in a log is no evidence: prompts, answers, scores, tool outputs, and sandbox errors."""

from __future__ import annotations

import io

import pytest
from support.logs.builder import DRIVER_SAW_IT, NOISE, spoken, traceback

from verl_doctor.toolkit.logs.answer import Answer
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.headline import headline

DISK = traceback("OSError: [Errno 28] No space left on device", place="/home/u/x.py")
RUNNER = "(TaskRunner pid=7) "
STEP = f"{RUNNER}step:1 - actor/pg_loss:0.01 - critic/score/mean:0.25\n"
QUOTATIONS = {
    "a reward manager": spoken(
        f"[prompt] user\nwhy does this fail\n{DISK}[response] it is\n{DISK}[ground_truth] {DISK}[score] 0.0\n",
        RUNNER,
    ),
    "a score with values": spoken(
        f"[prompt] user\n[response] it is\n{DISK}[ground_truth] x\n[score] 0.0\n[acc] False\n"
        "[pred] RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n",
        RUNNER,
    ),
    "a log of one process": f"[prompt] user\n[response] it is\n{DISK}[ground_truth] x\n[score] 0.0\n",
    "a tool": spoken(f"<tool_response>\n{DISK}</tool_response>\n", RUNNER),
    "a solution": spoken(
        f"{'-' * 32}\nGolden answers: ['a']\nSolution string: foo\n{DISK}{'-' * 32}\n", RUNNER
    ),
    "a chat": spoken(f"<|im_start|>user\n{DISK}<|im_end|>\n", RUNNER),
    "a row": '{"input": "x", "output": "OSError: [Errno 28] No space left on device", "score": 0}\n',
    "messages": f"{RUNNER}{{'messages': [{{'role': 'tool', 'content': 'ModuleNotFoundError: No module named vllm'}}]}}\n",
    "a sandbox": f"{RUNNER}type 0 compilation error = ModuleNotFoundError: No module named 'torch'\n",
}


def word(log: str) -> str:
    found = excerpt(io.BytesIO(log.encode()).read)
    return headline(Answer(read(found.lines, "run.log"), ("run.log",), found.size))[0]


@pytest.mark.parametrize("quotation", QUOTATIONS.values(), ids=QUOTATIONS)
def test_quoted_error_proves_nothing(quotation: str) -> None:
    assert word(NOISE + quotation) == "OK"
    assert word(NOISE + quotation + STEP) == "OK"
    assert word(NOISE + quotation + DRIVER_SAW_IT) == "NOT DETERMINED"


@pytest.mark.parametrize("quotation", QUOTATIONS.values(), ids=QUOTATIONS)
def test_error_after_a_quotation_counts(quotation: str) -> None:
    own = traceback("KeyError: 'a'", place="/home/u/reward.py")
    assert word(NOISE + quotation + own) == "YOUR CODE"
    files = spoken(traceback("OSError: [Errno 24] Too many open files"), RUNNER)
    assert word(NOISE + quotation + files) == "FIRST CAUSE"


def test_end_of_each_of_many_quotations_is_kept() -> None:
    padding = f"{RUNNER}fine\n" * 300
    log = "".join(QUOTATIONS["a reward manager"] + padding for _ in range(20))
    assert word(log + STEP) == "OK"


def test_unterminated_quotation_hides_nothing() -> None:
    assert word(spoken(f"[response] it is\n{DISK}", RUNNER)) == "FIRST CAUSE"
