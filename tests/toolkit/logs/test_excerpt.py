"""Excerpts of overwritten or very long lines keep the relevant text and its process."""

from __future__ import annotations

import io

import pytest

from verl_doctor.toolkit.logs.diagnosis import Reading, read
from verl_doctor.toolkit.logs.excerpt import excerpt

MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
AMPERE = "NotImplementedError: FlashAttention only supports Ampere GPUs or newer."


def judged(text: str) -> Reading:
    return read(excerpt(io.BytesIO(text.encode()).read).lines, "run.log")


def bars(times: int) -> str:
    return "".join(
        f"Training Progress: {at:3}%|          | {at}/100 [00:00<?, ?it/s]\r" for at in range(times)
    )


@pytest.mark.parametrize(
    ("text", "code", "proof"),
    [
        (f"{bars(2)}{MEMORY}\n", "LOG110", MEMORY),
        (f"{bars(100)}{AMPERE}\n", "LOG115", AMPERE),
        (f"\r{MEMORY}\r\n", "LOG110", MEMORY),
        (f"progress\r{MEMORY}\r", "LOG110", MEMORY),
        (f"{'failed: 0 of 9 ' * 400}\r{MEMORY}\n", "LOG110", MEMORY),
    ],
)
def test_proof_excludes_a_preceding_progress_bar(text: str, code: str, proof: str) -> None:
    (cause,) = judged(text).causes
    assert cause.signature is not None
    assert (cause.signature.code, cause.number, cause.lines) == (code, 1, (proof,))


def test_traceback_ending_after_a_progress_bar_keeps_its_own_lines() -> None:
    frame = '  File "/venv/flash.py", line 3, in forward'
    (cause,) = judged(
        f"Traceback (most recent call last):\n{frame}\n    forward()\n{bars(100)}{AMPERE}\n"
    ).causes
    assert (cause.number, cause.lines) == (4, (frame, AMPERE))


def test_line_written_over_a_progress_bar_has_its_process() -> None:
    (cause,) = judged(f"(WorkerDict pid=7) {bars(1)}{MEMORY}\n").causes
    assert cause.process == "WorkerDict pid=7"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("ptxas fatal   : Value 'sm_130a' is not defined for option 'gpu-name'", "CUDA115"),
        (
            "Waiting for register center actor x_register_center to be ready. Elapsed time: 30 seconds",
            "RAY128",
        ),
    ],
)
def test_relevant_line_among_thousands_is_found(message: str, code: str) -> None:
    quiet = "".join(f"(TaskRunner pid=7) moved {at} blocks of the cache\n" for at in range(1500))
    (cause,) = judged(f"{quiet}{message}\n{quiet}").causes
    assert cause.signature is not None
    assert (cause.signature.code, cause.number, cause.lines) == (code, 1501, (message,))


@pytest.mark.slow
@pytest.mark.parametrize("behind", [b"", b"\r" + b"x" * 3_000_000])
def test_endless_line_is_read_around_its_first_error_and_at_its_end(behind: bytes) -> None:
    raw = b"x" * 5_000_000 + b"\r" + MEMORY.encode() + behind + b"\n"
    found = excerpt(io.BytesIO(raw).read)
    (cause,) = read(found.lines, "run.log").causes
    assert cause.lines == (MEMORY,)
    assert (found.shortened, found.total, found.size) == (1, 1, len(raw))


def test_readable_part_of_a_truncated_line_counts() -> None:
    parts = [f"fine\n{MEMORY}".encode()]

    def broken(_: int) -> bytes:
        if not parts:
            raise EOFError("it ends too early")
        return parts.pop()

    found = excerpt(broken)
    assert found.cut_off == "it ends too early"
    assert read(found.lines, "run.log").causes[0].lines == (MEMORY,)
