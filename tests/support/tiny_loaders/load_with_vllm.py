"""Loads models from their folders with vLLM and generates with each. Runs in a separate environment."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from PIL import Image

# An engine in a process of its own would import all of vLLM anew.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

from vllm import LLM, SamplingParams
from vllm.model_executor.models import registry

# So would a process that looks at each model's class, lest this one touch a GPU.
registry._run_in_subprocess = lambda look: look()


def told(folder: str) -> list[int]:
    """How many tokens each of two prompts got."""
    sees = Path(folder, "preprocessor_config.json").exists()
    model = LLM(folder, enforce_eager=True, max_model_len=256, max_num_seqs=2)
    part = [{"type": "image"}, {"type": "text", "text": "What?"}] if sees else "What?"
    asked = [{"role": "user", "content": part}]
    prompt = model.get_tokenizer().apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    one = {"prompt": prompt} | ({"multi_modal_data": {"image": Image.new("RGB", (84, 56))}} if sees else {})
    answers = model.generate([one, one], SamplingParams(max_tokens=8, ignore_eos=True))
    return [len(answer.outputs[0].token_ids) for answer in answers]


if __name__ == "__main__":
    print(json.dumps({Path(folder).parent.name: told(folder) for folder in sys.argv[1:]}))
