"""Advice on tensors whose shapes differ, computed from the shapes that the message states.

Weights and model belong to different configurations.
"""

from __future__ import annotations

import re

_MISMATCH = re.compile(
    r"size mismatch for ([\w.]+): copying a param with shape torch\.Size\(\[([\d, ]*)\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[([\d, ]*)\]\)"
)
_OF_VOCABULARY = re.compile(
    r"(?:embed_tokens|word_embeddings|tok_embeddings|embed_in|lm_head|wte|output_layer|score)(?:\.\w+)?$"
    r"|\.shared\.weight$"
)
_OF_ADAPTER = re.compile(r"\blora_([AB])\b")
_SIZES = re.compile(
    r"(?:size of tensor a|expanded size of the tensor) \((\d+)\) must match the (?:size of tensor b"
    r"|existing size) \((\d+)\)"
)
_OF_LAYER = re.compile(
    r"Input tensor \(shape=\((?:\d+, )*(\d+),?\)\) and weight tensor \(shape=\("
    r"(?:\d+, )*(\d+),?\)\) are not compatible"
)
_LOADS = re.compile(r"load|weight_loader|state_dict|copy_")


def mismatched(message: str, function: str) -> str:
    """Return advice on a weight whose shape is not the model's, or "" if the message states no shapes.

    `function` is where the exception was raised: sizes that differ elsewhere are no matter of weights.
    """
    if found := _MISMATCH.search(message):
        return _of_parameter(found[1], _shape(found[2]), _shape(found[3]))
    if (found := _OF_LAYER.search(message)) and (parts := _factor([int(found[1])], [int(found[2])])):
        return (
            f"the weight of the layer has {parts} times the size of its input ({found[2]} and "
            f"{found[1]}): one is divided among {parts} ranks of tensor parallelism, the other is not. "
            "Set tensor_model_parallel_size=1 for this model, with more expert or pipeline parallelism "
            "instead, or install a newer release of the package that builds its layers (the trainer, "
            "megatron-core)"
        )
    if _LOADS.search(function) and (found := _SIZES.search(message)):
        return _of_slice(int(found[1]), int(found[2]))
    return ""


def _of_parameter(name: str, stored: list[int], built: list[int]) -> str:
    if 0 in stored[:1] or 0 in built[:1]:
        where = "the checkpoint was saved" if 0 in stored[:1] else "the model is loaded"
        return (
            f"{name} has no rows because {where} while ZeRO-3 or FSDP had partitioned it: gather the "
            "weights (deepspeed.zero.GatheredParameters, stage3_gather_16bit_weights_on_model_save, "
            "zero_to_fp32.py, FULL_STATE_DICT), and save or load again"
        )
    if _OF_VOCABULARY.search(name) and len(stored) == len(built) and stored[1:] == built[1:]:
        return (
            f"the vocabulary has {stored[0]} entries in the checkpoint and {built[0]} in the model: "
            f"call model.resize_token_embeddings({stored[0]}) before the weights are loaded (the "
            "tokenizer that was saved beside them has the added tokens), set vocab_size in config.json "
            f"to {stored[0]}, or build the model from the folder of the checkpoint instead of its base"
        )
    if (part := _OF_ADAPTER.search(name)) is not None and len(stored) == len(built) > 1:
        at = 0 if part[1] == "A" else 1
        if stored[at] != built[at] and stored[1 - at] == built[1 - at]:
            return (
                f"the adapter was saved with rank {stored[at]} and is loaded with rank {built[at]}: set "
                f"r in its adapter_config.json, or lora_rank of the job, to {stored[at]}, or name the "
                "folder of the adapter that belongs to this configuration"
            )
    factor = _factor(stored, built)
    if factor:
        return (
            f"{name} is {factor} times as large in one as in the other ({stored} in the checkpoint, "
            f"{built} in the model): one of them is sharded over {factor} ranks, or is another size of "
            "the model. Load it with the number of ranks (tensor parallelism) that saved it, or merge "
            "it first (python -m verl.model_merger), and compare hidden_size and the numbers of heads "
            "and layers in config.json"
        )
    return (
        f"{name} is {stored} in the checkpoint and {built} in the model: weights and config.json are of "
        "different models. Name the folder of the model from which the checkpoint was trained, with "
        "its own config.json; for an adapter, the base model in its adapter_config.json and its rank"
    )


def _of_slice(wanted: int, given: int) -> str:
    larger, smaller = max(wanted, given), min(wanted, given)
    if smaller and larger % smaller == 0:
        return (
            f"a weight has {given} elements where the model expects {wanted}, a factor of "
            f"{larger // smaller}: the weights are sharded or packed otherwise than config.json states. "
            "Check quantization_config (4-bit weights are packed) and the numbers of key-value heads "
            "and experts in config.json against the weights, and load with tensor parallelism that "
            "divides them"
        )
    return (
        f"a weight has {given} elements where the model expects {wanted}: config.json and the weights "
        "are of different models, or the number of heads, experts or a quantized group is not "
        "divisible by the tensor parallelism. Try tensor_model_parallel_size=1, and compare "
        "config.json with the one on the Hub"
    )


def _shape(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]


def _factor(stored: list[int], built: list[int]) -> int:
    """Return by which whole number the shapes differ in one dimension; 0 if they differ otherwise."""
    differing = [pair for pair in zip(stored, built, strict=False) if pair[0] != pair[1]]
    if len(stored) != len(built) or len(differing) != 1:
        return 0
    smaller, larger = sorted(differing[0])
    return larger // smaller if smaller and larger % smaller == 0 else 0
