"""SMOKE110: vLLM's engine fails in sleep mode, or keeps its memory."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE110", 4, "vLLM", "the engine took 14.0 GiB of the GPUs' memory and gave back 0 B asleep"
    )


@check("SMOKE110", phase="engine", cost="slow", examples=_examples)
def engine_keeps_its_memory_asleep(run: SmokeRun) -> Iterator[Finding]:
    """vLLM's engine fails in sleep mode, or keeps its memory.

    ## Why it matters

    verl puts the engine to sleep while the trainer uses the GPU. If the engine does not release its memory,
    the trainer runs out of memory in the first update. The smoke test compares NVML's figures before, with
    and without the engine's memory.

    ## How to fix

    `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` and vLLM's allocator do not work together in many
    releases: `verl-doctor check` reports whether they do here.
    `actor_rollout_ref.rollout.free_cache_engine=False` turns sleep mode off, but needs twice the memory.
    """
    yield from broken_by("SMOKE110", run)
