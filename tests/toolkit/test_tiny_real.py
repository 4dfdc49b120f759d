"""The tiny data and model in an environment that really runs: what is written is what it loads."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import rehearsal_environment

from verl_doctor.toolkit.fact_interpreter import Interpreter, interpreter
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.tiny import Tiny, make

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def real() -> Interpreter:
    found = interpreter.collect(Machine(), Target(rehearsal_environment.python(), "--python"))
    assert isinstance(found, Interpreter)
    return found


@pytest.fixture
def made(real: Interpreter, tmp_path: Path) -> Callable[..., Tiny]:
    def write(name: str, **asked: object) -> Tiny:
        tiny = make(Machine(), real, tmp_path / name, **asked)
        assert isinstance(tiny, Tiny), tiny
        return tiny

    return write


def test_two_runs_write_the_same_bytes(made: Callable[..., Tiny], tmp_path: Path) -> None:
    made("one")
    made("two")
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_transformers_loads_every_tensor_and_no_other(made: Callable[..., Tiny]) -> None:
    tiny = made("one")
    told = inside(
        """
        import json, sys
        from transformers import AutoModelForCausalLM, AutoTokenizer
        model, info = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
        asked = [{"role": "user", "content": "How many?"}]
        print(json.dumps({
            "trouble": [str(value) for value in info.values() if value],
            "class": type(model).__name__,
            "dtype": str(model.dtype),
            "tokens": len(tokenizer),
            "prompt": tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False),
            "again": tokenizer.decode(tokenizer("caf\u00e9 3 + 4\\n\\n").input_ids),
        }))
        """,
        tiny.model,
    )
    assert told == {
        "trouble": [],
        "class": "Qwen2ForCausalLM",
        "dtype": "torch.bfloat16",
        "tokens": 512,
        "prompt": "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n",
        "again": "caf\u00e9 3 + 4\n\n",
    }


def inside(script: str, *arguments: str | Path) -> dict[str, object]:
    """What a script prints as JSON in its last line, in the environment that really runs."""
    python = rehearsal_environment.python()
    lines = script.splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    done = subprocess.run(
        [str(python), "-c", "\n".join(line[margin:] for line in lines), *map(str, arguments)],
        env={**os.environ, **rehearsal_environment.variables()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])
