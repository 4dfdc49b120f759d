"""Loads models from their folders with transformers and prints the result. Runs in a separate environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from PIL import Image
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoProcessor,
    AutoTokenizer,
)


def told(folder: str) -> dict[str, object]:
    sees = hasattr(AutoConfig.from_pretrained(folder), "vision_config")
    kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
    model, info = kind.from_pretrained(folder, output_loading_info=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    asked = [{"role": "user", "content": "How many?"}]
    model.generate(**tokenizer("How many?", return_tensors="pt"), max_new_tokens=4)
    with safe_open(Path(folder, "model.safetensors"), "pt") as file:
        kept = {str(file.get_tensor(name).dtype) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    answer = {
        "trouble": [str(value) for value in info.values() if value],
        "class": type(model).__name__,
        "tokens": len(tokenizer),
        "prompt": tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False),
        "again": tokenizer.decode(tokenizer("caf\u00e9 3 + 4\n\n").input_ids),
        "saved as": ", ".join(kept),
    }
    return answer | ({"of a picture": tokens_of_a_picture(folder, model)} if sees else {})


def tokens_of_a_picture(folder: str, model: torch.nn.Module) -> int:
    processor = AutoProcessor.from_pretrained(folder)
    asked = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}]
    prompt = processor.apply_chat_template(asked, add_generation_prompt=True)
    inputs = processor(text=[prompt], images=[Image.new("RGB", (84, 56))], return_tensors="pt")
    model.generate(**inputs, max_new_tokens=4)
    return int((inputs["input_ids"] == model.config.image_token_id).sum())


print(json.dumps({Path(folder).parent.name: told(folder) for folder in sys.argv[1:]}))
