"""Tiny models by shape: the content of their files, and the names and sizes of their tensors.

They have the format of published models (https://huggingface.co/Qwen), which every release of transformers
and vLLM reads; writing it requires neither. Attention has eight heads, which up to eight GPUs can share.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from verl_doctor.toolkit.tiny.tokenizer import (
    END,
    IMAGE,
    LONGEST,
    STOP,
    VIDEO,
    VISION_END,
    VISION_START,
    VOCABULARY,
    chat_template,
    number,
)

Tensors = dict[str, tuple[int, ...]]

_HEADS, _PAIRS, _WIDTH, _LAYERS = 8, 2, 64, 2  # heads, heads of keys and values, numbers per head, layers
_HIDDEN = _HEADS * _WIDTH
_INNER = 512
_PATCH, _FRAMES, _MERGED = (
    14,
    2,
    2,
)  # pixels; pictures of a video per patch; patches in a row that become one token
_SEEN, _SEEING_HEADS, _SEEN_INNER, _SEEING_LAYERS = 256, 8, 256, 2


@dataclass(frozen=True)
class Shape:
    """One shape.

    `family` is its name in transformers (`models/<family>`); `files` are further JSON files of its folder.

    `sees` means that it accepts pictures.
    """

    title: str
    family: str
    config: dict[str, Any]
    tensors: Tensors
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    sees: bool = False

    @property
    def parameters(self) -> int:
        """How many numbers the model has."""
        return sum(math.prod(sizes) for sizes in self.tensors.values())


def _qwen2() -> Shape:
    return Shape("Qwen2", "qwen2", _text("Qwen2ForCausalLM", "qwen2"), _text_tensors(bias=True))


def _qwen3() -> Shape:
    config = _text("Qwen3ForCausalLM", "qwen3") | {"attention_bias": False, "head_dim": _WIDTH}
    norms = {
        f"model.layers.{layer}.self_attn.{part}_norm.weight": (_WIDTH,)
        for layer in range(_LAYERS)
        for part in "qk"
    }
    return Shape("Qwen3", "qwen3", config, _text_tensors(bias=False) | norms)


def _qwen2_5_vl() -> Shape:
    config = _text("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl") | {
        "image_token_id": number(IMAGE),
        "video_token_id": number(VIDEO),
        "vision_start_token_id": number(VISION_START),
        "vision_end_token_id": number(VISION_END),
        "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},  # together half of a head
        "vision_config": {
            "depth": _SEEING_LAYERS,
            "fullatt_block_indexes": [_SEEING_LAYERS - 1],
            "hidden_act": "silu",
            "hidden_size": _SEEN,
            "in_channels": 3,
            "in_chans": 3,
            "intermediate_size": _SEEN_INNER,
            "model_type": "qwen2_5_vl",
            "num_heads": _SEEING_HEADS,
            "out_hidden_size": _HIDDEN,
            "patch_size": _PATCH,
            "spatial_merge_size": _MERGED,
            "spatial_patch_size": _PATCH,
            "temporal_patch_size": _FRAMES,
            "tokens_per_second": 2,
            "window_size": 112,
        },
    }
    return Shape(
        "Qwen2.5-VL",
        "qwen2_5_vl",
        config,
        _text_tensors(bias=True) | _vision_tensors(),
        {
            "preprocessor_config.json": _preprocessor(),
            "chat_template.json": {"chat_template": chat_template()},
        },
        sees=True,
    )


SHAPES: dict[str, Callable[[], Shape]] = {"qwen2": _qwen2, "qwen3": _qwen3, "qwen2.5-vl": _qwen2_5_vl}


def generation_config() -> dict[str, Any]:
    """Return the content of generation_config.json for each of them."""
    return {"eos_token_id": [number(STOP), number(END)], "pad_token_id": number(END)}


def _text(architecture: str, family: str) -> dict[str, Any]:
    """Return the part of config.json about text."""
    return {
        "architectures": [architecture],
        "attention_dropout": 0.0,
        "bos_token_id": number(END),
        "eos_token_id": number(STOP),
        "hidden_act": "silu",
        "hidden_size": _HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": _INNER,
        "max_position_embeddings": LONGEST,
        "max_window_layers": _LAYERS,
        "model_type": family,
        "num_attention_heads": _HEADS,
        "num_hidden_layers": _LAYERS,
        "num_key_value_heads": _PAIRS,
        "pad_token_id": number(END),
        "rms_norm_eps": 1e-06,
        "rope_theta": 10000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": VOCABULARY,
    }


def _text_tensors(*, bias: bool) -> Tensors:
    """Return the tensors of that part; `bias` is that of queries, keys and values."""
    found: Tensors = {
        "model.embed_tokens.weight": (VOCABULARY, _HIDDEN),
        "model.norm.weight": (_HIDDEN,),
        "lm_head.weight": (VOCABULARY, _HIDDEN),
    }
    for layer in range(_LAYERS):
        at = f"model.layers.{layer}"
        for part, width in (("q", _HIDDEN), ("k", _PAIRS * _WIDTH), ("v", _PAIRS * _WIDTH)):
            found |= _linear(f"{at}.self_attn.{part}_proj", width, _HIDDEN, bias=bias)
        found |= _linear(f"{at}.self_attn.o_proj", _HIDDEN, _HIDDEN, bias=False)
        found |= _gated(f"{at}.mlp", _INNER, _HIDDEN, bias=False)
        found |= {
            f"{at}.{norm}.weight": (_HIDDEN,) for norm in ("input_layernorm", "post_attention_layernorm")
        }
    return found


def _vision_tensors() -> Tensors:
    """Return the tensors of the vision part, and of the part that turns its patches into tokens."""
    merged = _SEEN * _MERGED**2
    found: Tensors = {
        "visual.patch_embed.proj.weight": (_SEEN, 3, _FRAMES, _PATCH, _PATCH),
        "visual.merger.ln_q.weight": (_SEEN,),
        **_linear("visual.merger.mlp.0", merged, merged, bias=True),
        **_linear("visual.merger.mlp.2", _HIDDEN, merged, bias=True),
    }
    for layer in range(_SEEING_LAYERS):
        at = f"visual.blocks.{layer}"
        found |= _linear(f"{at}.attn.qkv", 3 * _SEEN, _SEEN, bias=True)
        found |= _linear(f"{at}.attn.proj", _SEEN, _SEEN, bias=True)
        found |= _gated(f"{at}.mlp", _SEEN_INNER, _SEEN, bias=True)
        found |= {f"{at}.{norm}.weight": (_SEEN,) for norm in ("norm1", "norm2")}
    return found


def _linear(name: str, outputs: int, inputs: int, *, bias: bool) -> Tensors:
    return {f"{name}.weight": (outputs, inputs)} | ({f"{name}.bias": (outputs,)} if bias else {})


def _gated(name: str, inner: int, hidden: int, *, bias: bool) -> Tensors:
    return {
        **_linear(f"{name}.gate_proj", inner, hidden, bias=bias),
        **_linear(f"{name}.up_proj", inner, hidden, bias=bias),
        **_linear(f"{name}.down_proj", hidden, inner, bias=bias),
    }


def _preprocessor() -> dict[str, Any]:
    """Return how pictures become patches."""
    token = (_PATCH * _MERGED) ** 2  # pixels of one token
    return {
        "image_mean": [0.48145466, 0.4578275, 0.40821073],  # of CLIP, like Qwen's
        "image_processor_type": "Qwen2VLImageProcessor",
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "max_pixels": 256 * token,
        "merge_size": _MERGED,
        "min_pixels": 4 * token,
        "patch_size": _PATCH,
        "processor_class": "Qwen2_5_VLProcessor",
        "temporal_patch_size": _FRAMES,
    }
