"""The tokenizer of a tiny model: its special tokens, and the file that describes its use."""

from __future__ import annotations

import importlib.resources
from typing import Any

VOCABULARY = 512
LONGEST = 4096  # tokens

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"

SPECIAL = (END, START, STOP, VISION_START, VISION_END, "<|vision_pad|>", IMAGE, VIDEO)
"""Tokens that are omitted from decoded text, as in every tokenizer of Qwen."""

PLAIN = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
"""Single tokens that remain in decoded text."""


def number(token: str) -> int:
    """Return the number of a special token. They come after all others."""
    named = (*SPECIAL, *PLAIN)
    return VOCABULARY - len(named) + named.index(token)


def chat_template() -> str:
    """Return the template: ChatML with tools and pictures in Qwen's form."""
    data = importlib.resources.files("verl_doctor.toolkit") / "data/tiny_chat_template.jinja"
    return data.read_text("utf-8")


def tokenizer_config() -> dict[str, Any]:
    """Return the content of tokenizer_config.json, in the form that every release of transformers reads."""
    return {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": {str(number(token)): _added(token) for token in (*SPECIAL, *PLAIN)},
        "additional_special_tokens": [token for token in SPECIAL if token != END],
        "bos_token": None,
        "chat_template": chat_template(),
        "clean_up_tokenization_spaces": False,
        "eos_token": STOP,
        "errors": "replace",
        "model_max_length": LONGEST,
        "pad_token": END,
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def _added(token: str) -> dict[str, Any]:
    return {
        "content": token,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": token in SPECIAL,
    }
