"""Remedies contradict no line of the log: their demands are compared with the machine shown in it."""

from __future__ import annotations

import io

import pytest

from verl_doctor.toolkit.logs.causes import remedy_of
from verl_doctor.toolkit.logs.conditions import contradicts, fitting, traits_of
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.lines import log_lines
from verl_doctor.toolkit.logs.signature import signatures

MACHINES = {
    "amd": "INFO 11-20 10:00:00 [__init__.py:1] Automatically detected platform rocm.\n",
    "npu": "INFO 11-20 10:00:00 [__init__.py:1] Automatically detected platform ascend.\n",
    "nvidia": "NVIDIA-SMI 550.54 Driver Version: 550.54\n",
}
SPOKEN = [
    (signature, example.log)
    for signature in signatures()
    for example in signature.examples
    if example.speaks and signature.remedy
]


def test_remedy_fits_the_examples_of_its_signature() -> None:
    wrong = [
        (signature.code, log)
        for signature, log in SPOKEN
        if fitting(signature.remedy, traits_of(log_lines(log))) != signature.remedy
    ]
    assert wrong == []


@pytest.mark.parametrize("machine", MACHINES)
def test_remedy_never_contradicts_the_machine_in_the_log(machine: str) -> None:
    traits = traits_of(log_lines(MACHINES[machine]))
    assert traits == {machine}
    for signature, _ in SPOKEN:
        for part in fitting(signature.remedy, traits).split("; "):
            assert not contradicts(part, traits), (signature.code, part)


@pytest.mark.slow
def test_other_logs_do_not_contradict_a_remedy() -> None:
    for _, log in SPOKEN[::4]:
        reading = read(excerpt(io.BytesIO(log.encode()).read).lines, "run.log")
        traits = traits_of(log_lines(log))
        for cause in reading.causes:
            assert not any(contradicts(part, traits) for part in remedy_of(cause).split("; ")), log


def _remedy(log: str) -> str:
    reading = read(list(log_lines(log)), "run.log")
    error = reading.causes[0] if reading.causes else reading.error
    assert error is not None
    return remedy_of(error)


_RAISED = 'Traceback (most recent call last):\n  File "/usr/lib/python{}/site-packages/{}", line 2, in run\n    run()\n{}\n'
_HELD = _RAISED.format(
    "3.11", "zmq/socket.py", "zmq.error.ZMQError: Address already in use (addr='ipc:///tmp/a.sock')"
)
_LOCK = "ValueError: loop argument must agree with lock"
_TYPE = _RAISED.format("3.11", "transformers/models/auto/configuration_auto.py", "KeyError: 'qwen3'")


@pytest.mark.parametrize(
    ("log", "older", "newer", "proposal"),
    [
        (_HELD, "verl==0.7.1", "verl==0.9.1", "pip install 'verl>=0.8.0'"),
        (_RAISED.format("3.11", "ray/a.py", "ray.exceptions.RaySystemError: System error: Attempting to deserialize object on a CUDA device but"), "verl==0.7.1", "verl==0.9.1", "pip install 'verl>=0.8.0'"),
        (_RAISED.format("3.9", "sglang/x.py", _LOCK), "uvloop==0.22.1", "uvloop==0.21.0", "pip install 'uvloop==0.21.0'"),
        (_TYPE, "transformers==4.40.0", "transformers==4.57.1", "pip install 'transformers>=4.51'"),
        (_RAISED.format("3.11", "verl/a.py", "ImportError: cannot import name 'AutoModelForImageTextToText' from 'transformers' (/x/transformers/__init__.py)"), "transformers==4.40.0", "transformers==4.57.1", "pip install 'transformers>=4.46'"),
    ],
)  # fmt: skip
def test_remedy_proposes_no_release_that_the_log_shows(
    log: str, older: str, newer: str, proposal: str
) -> None:
    assert proposal in _remedy(f"INFO {older}\n{log}")
    assert proposal in _remedy(log)
    remedy = _remedy(f"INFO {newer}\n{log}")
    assert remedy
    assert proposal not in remedy


def test_remedy_proposes_no_python_that_the_log_shows() -> None:
    assert "Python 3.11 or 3.12" in _remedy(_RAISED.format("3.10", "sglang/x.py", _LOCK))
    remedy = _remedy("INFO uvloop==0.21.0\n" + _RAISED.format("3.11", "sglang/x.py", _LOCK))
    assert remedy == "set actor_rollout_ref.rollout.name=vllm"


def test_remedy_proposes_a_package_once() -> None:
    assert _remedy(_TYPE).count("pip install") == 1
    assert fitting("pip install -U a to the newest; wait", set(), "pip install 'a>=2'") == "wait"
    assert fitting("pip install -U a", set(), "pip install 'a>=2'") == ""
    assert fitting("pip install -U a", set(), "pip show a") == "pip install -U a"


def test_empty_remedy_is_reported() -> None:
    assert fitting("nvidia-smi on the host; ask for another node", {"amd"}) == "ask for another node"
    assert "do not apply to this machine" in fitting("nvidia-smi on the host", {"npu"})
    assert fitting("torch for cu128 on Blackwell", {"nvidia", "old GPU"}) != "torch for cu128 on Blackwell"
    assert fitting("", {"amd"}) == ""


@pytest.mark.parametrize(
    ("log", "code", "word"),
    [
        ("ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla V100 GPU has compute capability 7.0.\n", "LOG114", "float16"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n", "LOG115", "sdpa"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 41.25 GiB is free.\n", "LOG116", "limit"),
    ],
)  # fmt: skip
def test_old_and_full_gpus_get_different_advice(log: str, code: str, word: str) -> None:
    (cause,) = read(excerpt(io.BytesIO(log.encode()).read).lines, "run.log").causes
    assert cause.signature is not None
    assert cause.signature.code == code
    assert word in remedy_of(cause)
