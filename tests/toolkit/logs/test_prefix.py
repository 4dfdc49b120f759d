"""Unknown prefixes: a log is judged as without them."""

from __future__ import annotations

import io
import json
import random

import pytest
from support.logs.builder import DRIVER_SAW_IT, NOISE, is_raised, spoken, traceback
from support.logs.prefixes import prefixed

from verl_doctor.toolkit.logs.diagnosis import Reading, read
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.lines import log_lines
from verl_doctor.toolkit.logs.prefix import unprefixed
from verl_doctor.toolkit.logs.signature import signatures

FORMS = 200
FILES = traceback("OSError: [Errno 24] Too many open files: 'x'")
EXAMPLES = [
    (traceback(example.log) if is_raised(example.log) else example.log).rstrip("\n") + "\n"
    for signature in signatures()
    for example in signature.examples
]


def judged(log: str) -> Reading:
    return read(excerpt(io.BytesIO(log.encode()).read).lines, "run.log")


def answer(log: str) -> tuple[object, ...]:
    """Judgement of a log, without the quoted lines."""
    reading = judged(log)
    first = reading.first or reading.error
    codes = tuple(cause.signature.code for cause in reading.causes if cause.signature is not None)
    return codes, first and first.kind, first and first.blame and first.blame.fault


@pytest.mark.parametrize("part", range(20))
def test_prefixed_example_is_judged_like_the_plain_one(part: int) -> None:
    chance = random.Random()
    for example in chance.sample(EXAMPLES, 3):
        log = (NOISE + example).replace("\r", "\n")
        form = chance.randrange(FORMS)
        assert answer(prefixed(log, form)) == answer(log), f"form {form} of {example}"


@pytest.mark.parametrize(
    "before",
    [
        "10:00:01 ",
        "node-a: ",
        "2026-11-20 10:00:00.123 | ERROR    | app.train:run:88 - ",
        "2026-11-20T10:00:00.123456Z 01O ",
        "[2026-11-20 10:00:00] rank 3 ",
        "<13>Nov 20 10:00:00 h7 train: ",
        "t=12.3s pod/abc-x7f2: ",
        "训练节点3\uff1a",
        "3> ",
    ],
)
def test_prefix_is_recognised_from_a_traceback(before: str) -> None:
    for log in (FILES, NOISE + FILES + NOISE):
        assert answer(spoken(log, before))[0] == ("HOST103",)


def test_levels_and_processes_follow_from_the_learnt_prefix() -> None:
    own = traceback("KeyError: 'answer'", place="/home/u/reward.py").splitlines()
    other = traceback("OSError: [Errno 28] No space left on device").splitlines()
    mixed = "".join(f"alpha~ ERROR {a}\nbeta~ INFO {b}\n" for a, b in zip(own, other, strict=True))
    lines = unprefixed(list(log_lines(mixed)))
    assert {(line.process, line.level) for line in lines if line.text} == {
        ("alpha", "ERROR"),
        ("beta", "INFO"),
    }
    assert answer(mixed)[2] == "code"


def test_text_repeated_by_a_program_is_not_a_prefix() -> None:
    steps = "".join(f"step:{at} - actor/pg_loss:0.{at} - critic/score/mean:0.25\n" for at in range(20))
    assert [line.text for line in unprefixed(list(log_lines(steps)))] == steps.split("\n")


def test_json_message_keeps_its_level_and_traceback() -> None:
    raised = {"level": "error", "msg": "step failed", "exc_info": FILES}
    assert answer(json.dumps(raised) + "\n")[0] == ("HOST103",)
    nested = {"record": {"level": {"name": "INFO"}, "message": "OSError: [Errno 24] Too many open files"}}
    assert (
        answer(f"{json.dumps({'level': 'info', 'msg': 'OSError: [Errno 24] Too many open files'})}\n")[0]
        == ()
    )
    assert judged(json.dumps(nested)).error is None
    assert judged('{"score": 1, "answer": "OSError: [Errno 24] Too many open files"}\n' * 2).total == 2


def test_other_encodings_are_read() -> None:
    log = f"训练失败, 显存不足\n{FILES}".encode("gbk")
    reading = read(excerpt(io.BytesIO(log).read).lines, "run.log")
    assert reading.causes[0].signature is not None
    shown = traceback("RuntimeError: 文件打不开").encode("gbk")
    found = read(excerpt(io.BytesIO(shown).read).lines, "run.log").error
    assert found is not None
    assert "文件打不开" in found.words


def test_prefixed_consequences_remain_consequences() -> None:
    assert judged(spoken(DRIVER_SAW_IT, "gpu-7 :: ")).causes == ()


def test_indented_traceback_of_another_program_is_read() -> None:
    log = (
        "  error: building `x` failed\n      [stderr]\n      Traceback (most recent call last):\n"
        '        File "/job/setup.py", line 3, in <module>\n          call()\n      JudgeError: no\n\n  help: try again\n'
    )
    reading = read(excerpt(io.BytesIO(log.encode()).read).lines, "run.log")
    assert reading.first is not None
    assert reading.first.blame is not None
    assert reading.first.blame.place == "/job/setup.py:3, in <module>"
