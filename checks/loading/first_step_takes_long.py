"""LOAD115: much of the time until the first training step can be saved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from verl_doctor.checks.loading._load_prediction import in_seconds, reading
from verl_doctor.checks.loading._loading import job, memory_left, named, readers, speeds, storage
from verl_doctor.checks.shared.flashinfer import must_compile_sampler
from verl_doctor.checks.shared.flashinfer_examples import H200, SAMPLER
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.host.limits import HostLimits
from verl_doctor.toolkit.collectors.host.memory import HostMemory
from verl_doctor.toolkit.collectors.kernels.flashinfer import FlashInfer
from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed
from verl_doctor.toolkit.collectors.model.storage import ModelStorage
from verl_doctor.toolkit.collectors.packages.bytecode import Bytecode, PackageBytecode
from verl_doctor.toolkit.collectors.vllm.sampler import VllmSampler
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_WORTH_IT = 60  # seconds
# On an H200 machine, 16 cores, verl 0.9.1 and vLLM 0.24, as of 2026-11. Imports of main_ppo took 12 s longer
# without bytecode, and four processes start one after the other: the driver, its task runner, the workers,
# and vLLM's own. If FlashInfer's sampler had to be compiled, the first engine was not up after 150 s;
# otherwise it took 46 s.
_IMPORT, _ONE_AFTER_THE_OTHER = 12, 4
_SAMPLER = 104

_SLOW, _FAST = speeds(40, 900), speeds(1800, 2100)
_COMPILED = Bytecode(
    packages=(PackageBytecode(name="torch", folder="/env/torch", sources=2400, missing=0),), writable=True
)
_PLAIN = Bytecode(
    packages=(PackageBytecode(name="torch", folder="/env/torch", sources=2400, missing=2400),), writable=True
)
_BUILT, _UNBUILT = H200(built=("sampling",)), H200()


@dataclass(frozen=True)
class _Part:
    """A part of the time until the first step, in seconds, of which `saved` can be avoided.

    The rule or command for that is `how`.
    """

    what: str
    seconds: float
    saved: float
    how: str


def _examples() -> list[Example]:
    return [
        Example("nothing to save", (storage(), job(), _FAST, _COMPILED, _BUILT, SAMPLER())),
        Example(
            "only bytecode, which another rule reports", (storage(), job(), _FAST, _PLAIN, _BUILT, SAMPLER())
        ),
        Example(
            "a slow share, no bytecode, no sampler",
            (storage("nfs4", shared=True), job(), _SLOW, _PLAIN, _UNBUILT, SAMPLER()),
            (
                "about 9 min of the time until the first step can be saved: weights 7 min, bytecode 48 s, "
                "FlashInfer's sampler 104 s"
            ),
        ),
        Example(
            "only a slow network share",
            (storage("nfs4", shared=True), job(), _SLOW, _COMPILED, _BUILT, SAMPLER()),
            "weights 7 min",
        ),
    ]


@check("LOAD115", severity="info", cost="live", examples=_examples)
def first_step_takes_long(
    storage: ModelStorage,
    configuration: Configuration | Unknown,
    speed: LoadSpeed | Unknown,
    bytecode: Bytecode | Unknown,
    flashinfer: FlashInfer | Unknown,
    sampler: VllmSampler | Unknown,
    memory: HostMemory | Unknown,
    limits: HostLimits | Unknown,
) -> Iterator[Finding]:
    """Much of the time until the first training step can be saved.

    ## Why it matters

    Before its first step a job reads weights, compiles Python sources in each process, and compiles kernels.
    Each of these has its own rule; this one adds them up: weights from speeds measured here, the others from
    their cost on a machine with an H200. What cannot be predicted is listed: imports, CUDA and NCCL, vLLM's
    profiling, and its CUDA graphs if `enforce_eager` is off.

    ## How to fix

    Start with the largest: `verl-doctor warmup` for weights and bytecode, `verl-doctor fix` for the sampler.
    `enforce_eager=True` saves capturing CUDA graphs at each start but slows down every rollout: it pays off
    for a run of a few steps, not for training.
    """
    parts = [
        *_weights(storage, configuration, speed, memory_left(memory, limits)),
        *_bytecode(bytecode),
        *_sampler(flashinfer, sampler, configuration),
    ]
    saved = [part for part in parts if part.saved >= 1]
    total = sum(part.saved for part in saved)
    if total < _WORTH_IT:
        return
    savings = ", ".join(f"{part.what} {in_seconds(part.saved)}" for part in saved)
    yield Finding(
        f"about {in_seconds(total)} of the time until the first step can be saved: {savings}",
        Evidence(
            found="; ".join(f"{part.what}: {in_seconds(part.seconds)} now" for part in parts),
            wanted=f"not included: {_unmeasured(configuration, speed)}",
            read_from=storage.folder,
        ),
        subject=Subject("model", storage.folder),
        remedy="; ".join(dict.fromkeys(part.how for part in sorted(saved, key=lambda part: -part.saved))),
    )


def _weights(
    storage: ModelStorage,
    configuration: Configuration | Unknown,
    speed: LoadSpeed | Unknown,
    left: float,
) -> Iterator[_Part]:
    who = readers(configuration, 1)
    fits = storage.bytes <= left
    prediction = None if isinstance(speed, Unknown) else reading(storage, speed, len(who), fits=fits)
    if prediction is not None:
        how = "LOAD114 shows how to load the weights faster"
        yield _Part(
            f"weights, read by {named(who)}" if len(who) > 1 else "weights",
            prediction.cold,
            prediction.gain,
            how,
        )


def _bytecode(bytecode: Bytecode | Unknown) -> Iterator[_Part]:
    if isinstance(bytecode, Bytecode) and bytecode.sources:
        seconds = _IMPORT * _ONE_AFTER_THE_OTHER * bytecode.missing / bytecode.sources
        yield _Part("bytecode", seconds, seconds, "PY103 shows how to compile sources once")


def _sampler(
    flashinfer: FlashInfer | Unknown, sampler: VllmSampler | Unknown, configuration: Configuration | Unknown
) -> Iterator[_Part]:
    if isinstance(flashinfer, Unknown) or isinstance(sampler, Unknown):
        return
    if must_compile_sampler(flashinfer, sampler, configuration):
        yield _Part("FlashInfer's sampler", _SAMPLER, _SAMPLER, "CUDA130 shows how to avoid compiling it")


def _unmeasured(configuration: Configuration | Unknown, speed: LoadSpeed | Unknown) -> str:
    """The parts that the sum does not include."""
    graphs = (
        not isinstance(configuration, Unknown)
        and configuration.get("actor_rollout_ref.rollout.enforce_eager") is False
    )
    return ", ".join(
        [
            *([f"weights ({speed.reason})"] if isinstance(speed, Unknown) else []),
            "imports, CUDA and NCCL, vLLM's profiling",
            *(["capturing CUDA graphs (enforce_eager is off)"] if graphs else []),
        ]
    )
