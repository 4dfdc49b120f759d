"""Reads tiny data with verl's datasets and prints the result. Runs in a separate environment."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from omegaconf import OmegaConf
from verl.tools.tool_registry import load_all_tools
from verl.utils import hf_processor, hf_tokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn


def told(folder: str) -> dict[str, object]:
    tokenizer, processor = hf_tokenizer(f"{folder}/model"), hf_processor(f"{folder}/model")
    config = OmegaConf.create(
        {"cache_dir": os.environ["HOME"], "max_prompt_length": 256, "filter_overlong_prompts_workers": 1}
    )
    rewarded = RLHFDataset(f"{folder}/train.parquet", tokenizer, config, processor)
    validation = RLHFDataset(f"{folder}/validation.parquet", tokenizer, config, processor)
    collate_fn([*(rewarded[index] for index in range(len(rewarded)))])
    row, other = rewarded[0], validation[0]
    assert row["reward_model"] != other["reward_model"]
    config = OmegaConf.create({"max_length": 512, "pad_mode": "no_padding"})
    tuning = MultiTurnSFTDataset(f"{folder}/sft_train.parquet", tokenizer, config, processor)
    talk = tuning[0]
    return {
        "rows": len(rewarded),
        "prompt": [*(turn["role"] for turn in row["raw_prompt"]), *pictures(row["raw_prompt"])],
        "tools": [*row["tools_kwargs"]],
        "loaded": loaded(Path(folder, "tools.py")),
        "learnt": tokenizer.decode(talk["input_ids"][talk["loss_mask"].bool()]),
    }


def loaded(path: Path) -> list[str]:
    """Return the tools that verl loads from the file, and the result of calling each."""
    if not path.exists():
        return []
    tools = load_all_tools(None, str(path))
    return [f"{tool.name} {asyncio.run(tool.call({'left': 3, 'right': 4}))}" for tool in tools]


def pictures(prompt: list[dict[str, object]]) -> list[str]:
    parts = [part for turn in prompt if isinstance(turn["content"], list) for part in turn["content"]]
    return ["image" for part in parts if part["type"] == "image" and part["image"].size == (84, 56)]


print(json.dumps({Path(folder).name: told(folder) for folder in sys.argv[1:]}))
