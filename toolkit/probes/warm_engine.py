"""Starts vLLM once with the job's model and settings and generates a few tokens, to fill its caches.

They are its compilation caches.

Runs under the target's interpreter. Called with the arguments of vLLM's LLM as JSON. The caller must omit
those that this vLLM does not accept.
"""

from __future__ import annotations

import importlib
import json
import sys


def main(arguments: str) -> None:
    """Start, generate, end. A failure ends the child with its traceback."""
    vllm = importlib.import_module("vllm")
    engine = vllm.LLM(**json.loads(arguments))
    sampling = vllm.SamplingParams(temperature=1.0, top_p=0.9, max_tokens=8, ignore_eos=True)
    engine.generate(["1 + 1 ="], sampling, use_tqdm=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
