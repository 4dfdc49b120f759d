"""What vLLM renamed, removed or moved, with dates: facts that the sources of one release do not show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rename:
    """An old name and its replacement, which has the opposite meaning.

    `since` is which release changed what, `as_of` when it was looked up.
    """

    code: str
    old: str
    new: str
    since: str
    upstream: str
    as_of: str


LOG_REQUESTS = Rename(
    code="VLLM101",
    old="disable_log_requests",
    new="enable_log_requests",
    since=(
        "vLLM 0.10.1 replaced the field, 0.12.0 removed the attribute and the keyword, "
        "0.17.0 the command-line flag"
    ),
    upstream="vllm-project/vllm#21739, #29402",
    as_of="2026-11",
)

# Imports of what has no successor: what has the same name elsewhere is another thing. As of 2026-11.
REMOVED = {
    # vLLM 0.16.0 has both: this one keeps the weight_loader, without which no weights can be loaded again.
    "vllm.model_executor.utils:replace_parameter": (
        "only newer releases have it; quantization.utils.layer_utils has another function of that name"
    ),
    "vllm.model_executor.sampling_metadata:SamplingMetadata": (
        "it was removed with the V0 engine and nothing replaces it"
    ),
}

# What older releases have under another name in another module, with the same parameters. As of 2026-11.
EARLIER = {
    # vLLM up to 0.8.5; 0.9.2 has it where verl wants it.
    "vllm.model_executor.model_loader.utils:process_weights_after_loading": (
        "vllm.model_executor.model_loader.loader",
        "_process_weights_after_loading",
    ),
}
