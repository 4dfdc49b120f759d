"""Fix for ENV104: keep verl from switching off a cache that is reliable now."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.kernels.compile_cache import SWITCHED_OFF_BY, CompileCache
from verl_doctor.toolkit.rule import Finding


@fix(
    "compile-cache-on",
    repairs="ENV104",
    safety="safe",
    restart="Ray and the job",
    upstream="pytorch/pytorch#162432",
)
def compile_cache_on(_: Finding, cache: CompileCache) -> list[Change] | Refusal:
    """Keep vLLM's compile cache switched on.

    verl does not change a variable that the process starting the job already has.
    """
    if not cache.written_whole_by:
        return Refusal(f"torch {cache.torch} may leave half-written entries in the cache")
    why = f"{cache.written_whole_by} writes cache entries atomically, so verl's workaround only costs time"
    return [SetVariable(SWITCHED_OFF_BY, "0", why, "verl no longer sets it to 1 (trainer/constants_ppo.py)")]
