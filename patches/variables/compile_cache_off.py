"""Fix for CUDA137: let each engine compile for itself while cache entries are not written atomically."""

from __future__ import annotations

from verl_doctor.toolkit.change import Change, Refusal, SetVariable, fix
from verl_doctor.toolkit.collectors.kernels.compile_cache import SWITCHED_OFF_BY, CompileCache
from verl_doctor.toolkit.rule import Finding


@fix(
    "compile-cache-off",
    repairs="CUDA137",
    safety="safe",
    restart="Ray and the job",
    upstream="vllm-project/vllm#31199",
)
def compile_cache_off(_: Finding, cache: CompileCache) -> list[Change] | Refusal:
    """Let each engine compile for itself until cache entries are written atomically.

    It costs about half a minute at each start of an engine, and changes nothing else. verl does this itself
    since 0.7.1.
    """
    if cache.written_whole_by:
        return Refusal(f"{cache.written_whole_by} writes cache entries atomically")
    why = f"with torch {cache.torch}, engines that start together may read half-written cache entries"
    return [SetVariable(SWITCHED_OFF_BY, "1", why, "torch 2.10 or vLLM 0.17")]
