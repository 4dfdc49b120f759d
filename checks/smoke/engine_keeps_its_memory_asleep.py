"""SMOKE110: an engine of vLLM that is put to sleep fails, or keeps its memory."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Finding, check


@check(
    "SMOKE110",
    phase="engine",
    cost="slow",
    examples=lambda: examples_of(
        "SMOKE110", 4, "vLLM", "the engine took 14.0 GiB of the GPUs' memory and gave back 0 B asleep"
    ),
)
def engine_keeps_its_memory_asleep(run: SmokeRun) -> Iterator[Finding]:
    """An engine of vLLM that is put to sleep fails, or keeps its memory.

    ## Why it matters

    verl puts the engine to sleep while the trainer uses the GPU. Without the memory that is not
    released, the trainer runs out of memory in the first update. NVML's count before, with and without
    the engine's memory is compared.

    ## How to fix

    `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` and vLLM's allocator do not work together in many
    releases: `verl-doctor check` reports whether they do here.
    `actor_rollout_ref.rollout.free_cache_engine=False` does without sleep, for twice the memory.
    """
    yield from broken_by("SMOKE110", run)
