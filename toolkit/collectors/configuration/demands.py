"""The constraints that this verl puts on its batch sizes, each recognised by verl's error message."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.facts import collector
from verl_doctor.toolkit.sources.python.source import read

# Where released verl checks its configuration (0.3 to 0.9), relative to the package folder.
_FILES = (
    "utils/config.py",
    "trainer/ppo/core_algos.py",
    "trainer/ppo/ray_trainer.py",
    "workers/config/actor.py",
    "workers/config/critic.py",
    "workers/fsdp_workers.py",
    "workers/engine_workers.py",
    "utils/seqlen_balancing.py",
    "workers/engine/utils.py",
    "workers/rollout/vllm_rollout/vllm_rollout_spmd.py",
    "workers/rollout/vllm_rollout/vllm_async_server.py",
    "experimental/agent_loop/agent_loop.py",
    "experimental/agent_loop/single_turn_agent_loop.py",
    "workers/rollout/chat_scheduler.py",
    "trainer/sft_trainer.py",
    "workers/engine/fsdp/transformer_impl.py",
)
_OLD_WORKERS = "workers/fsdp_workers.py"  # they divide a micro batch of all GPUs by their number
_ROLLOUT_CONFIG = "workers/config/rollout.py"
_CHANGEABLE = re.compile(rb"class RolloutConfig\b.*?_mutable_fields = \{(.*?)\}", re.DOTALL)
_TOKENS = b'"max_num_batched_tokens"'
_ROWS = "utils/dataset/rl_dataset.py"
_CHAT_IF_REQUESTED = re.compile(rb'if self\.return_raw_chat:\s+row_dict\["raw_prompt"\]')  # up to 0.6
_PATTERNS: Mapping[str, re.Pattern[bytes]] = {
    "divisible by the GPUs": re.compile(rb"must be divisible by minimal possible batch size"),
    "divisible by model parallelism": re.compile(rb"must be divisible by model_parallel_size"),
    "at least a mini batch": re.compile(
        rb"data\.train_batch_size >= config\.actor_rollout_ref\.actor\.ppo_mini_batch_size"
        rb"|must be >= \"\s*\n?\s*f?\"actor\.ppo_mini_batch_size"
    ),
    "one of two": re.compile(rb"Please set at least one of"),
    "not both": re.compile(rb"You have set both"),
    "mini batch per GPU": re.compile(rb"should be larger than 0 after"),
    "mini batch of micro batches": re.compile(rb"normalized ppo_mini_batch_size"),
    "whole micro batches": re.compile(
        rb"data size must be divisible by force_group_size \* micro_batch_size"
    ),
    "rollout groups": re.compile(rb"is not divisible by infer_"),
    "micro batch per GPU": re.compile(
        rb"assert self\.config\.actor\.ppo_micro_batch_size_per_gpu is not None"
    ),
    "same kind of batches": re.compile(
        rb"assert self\.config\.actor\.use_dynamic_bsz == self\.config\.rollout\.log_prob_use_dynamic_bsz"
    ),
    "remove padding": re.compile(rb"you must enable `use_remove_padding`"),
    "remove padding in the engine": re.compile(
        rb"When using sequence parallelism \(ulysses_sequence_parallel_size > 1\)"
    ),
    "sequence groups": re.compile(rb"mesh_shape=\(dp(?:_size)?, self\.ulysses_sequence_parallel_size\)"),
    "temperature": re.compile(rb"validation gen temperature should be greater than 0"),
    "row in a batch": re.compile(rb"max_token_len must be greater than the sequence length"),
    "row without padding": re.compile(rb"max_seq_len = max\(seq_len_effective\)"),
    "chunked prefill": re.compile(
        rb"Enable chunked prefill, max_num_batched_tokens is smaller than max_model_len"
    ),
    "model context": re.compile(rb"model context length should be greater than total sequence length"),
    "position embeddings": re.compile(rb"should be less than or equal to \"\s*f\"max_position_embeddings"),
    "answers of a group": re.compile(rb"Pass@k requires at least 2 samples per group"),
    "room to generate": re.compile(rb"leaves no room to generate within the"),
    "raw chat": re.compile(rb'\b(?:batch\.non_tensor_batch|kwargs)\["raw_prompt"\]'),
    "steps of an epoch": re.compile(rb"// self\.steps_per_epoch"),
    "train in both directions": re.compile(rb"assert not self\.engine_config\.forward_only"),
    "optimizer of the reference": re.compile(rb"optimizer_config=ref_config\.optim\b"),
    "batched tokens": re.compile(rb"self\.config\.max_num_batched_tokens = self\.config\.max_model_len"),
}


@dataclass(frozen=True)
class Demands:
    """The place where verl makes each demand, as "path:line"."""

    places: Mapping[str, str] = field(default_factory=dict)

    def place(self, name: str) -> str:
        """Where verl makes a demand; empty if this verl does not."""
        return self.places.get(name, "")


@collector(kept=True)
def demands(trees: VerlTrees) -> Demands:
    """Search for verl's messages in the files where it checks its configuration."""
    found: dict[str, str] = {}
    for name in _FILES:
        path = Path(trees.imported.folder, name)
        source = read(path)
        if not isinstance(source, bytes):
            continue
        for demand, pattern in _PATTERNS.items():
            match = pattern.search(source)
            if match and demand not in found:
                found[demand] = f"{path}:{_line(source, match.start())}"
    rows = read(Path(trees.imported.folder, _ROWS))
    if not isinstance(rows, bytes) or not _CHAT_IF_REQUESTED.search(rows):
        found.pop("raw chat", None)
    if not _is_frozen(Path(trees.imported.folder, _ROLLOUT_CONFIG)):
        found.pop("batched tokens", None)
    if os.path.exists(Path(trees.imported.folder, _OLD_WORKERS)):
        for demand in ("micro batch per GPU", "same kind of batches", "whole micro batches"):
            found.pop(demand, None)
    return Demands(found)


def _is_frozen(path: Path) -> bool:
    """Return whether the rollout's configuration forbids changing `max_num_batched_tokens`.

    In that case verl tries to change it.
    """
    source = read(path)
    match = _CHANGEABLE.search(source) if isinstance(source, bytes) else None
    return match is not None and _TOKENS not in match[1]


def _line(source: bytes, at: int) -> int:
    return source.count(b"\n", 0, at) + 1
