"""Remedies contradict no line of the log: their demands are compared with the machine shown in it."""

from __future__ import annotations

import io

import pytest

from verl_doctor.toolkit.logs.conditions import contradicts, fitting, traits_of
from verl_doctor.toolkit.logs.diagnosis import read
from verl_doctor.toolkit.logs.document import remedy_of
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


def test_other_logs_do_not_contradict_a_remedy() -> None:
    for _, log in SPOKEN[::4]:
        reading = read(excerpt(io.BytesIO(log.encode()).read).lines, "run.log")
        traits = traits_of(log_lines(log))
        for cause in reading.causes:
            assert not any(contradicts(part, traits) for part in remedy_of(cause).split("; ")), log


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
