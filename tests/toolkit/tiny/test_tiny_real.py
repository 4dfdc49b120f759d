"""The tiny data and models in a working environment: everything written can be loaded."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import rehearsal_environment
from support.environment import fetching
from support.kept import cannot_run, kept
from support.places import SUPPORT
from support.running import Doctor
from support.trying import thorough

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter, interpreter
from verl_doctor.toolkit.commands.tiny import render
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.tiny.tiny import Tiny, make

pytestmark = [pytest.mark.real, pytest.mark.slow(seconds=120)]

LOADERS = SUPPORT / "tiny_loaders"
MADE = {"qwen2": "text", "qwen3": "multi-turn", "qwen2.5-vl": "image"}


@pytest.fixture(scope="module")
def real() -> Interpreter:
    found = interpreter.collect(Machine(), Target(rehearsal_environment.python(), "--python"))
    assert isinstance(found, Interpreter)
    return found


@pytest.fixture(scope="module")
def made(real: Interpreter, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tiny]:
    """One of each shape and of each kind of rows, in a folder with an odd name."""
    top = tmp_path_factory.mktemp("tiny") / "döt dir's"
    top.mkdir()
    tiny = {shape: make(Machine(), real, top / shape, shape=shape, kind=kind) for shape, kind in MADE.items()}
    assert all(isinstance(example, Tiny) for example in tiny.values()), tiny
    return tiny


def test_two_runs_write_the_same_bytes(real: Interpreter, made: dict[str, Tiny], tmp_path: Path) -> None:
    for shape, kind in MADE.items():
        make(Machine(), real, tmp_path / shape, shape=shape, kind=kind)
        assert digests(tmp_path / shape) == digests(made[shape].model.parent)


def digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_transformers_loads_exactly_the_written_tensors(made: dict[str, Tiny]) -> None:
    assert loaded_by_transformers(made, rehearsal_environment.pictures()) == LOADED


@pytest.mark.thorough
def test_older_transformers_loads_the_same_files(made: dict[str, Tiny]) -> None:
    older = kept(f"transformers/4.51.3-{sys.version_info.major}.{sys.version_info.minor}", install_older)
    assert loaded_by_transformers(made, older, rehearsal_environment.pictures()) == LOADED


def loaded_by_transformers(made: dict[str, Tiny], *path: Path) -> dict[str, Any]:
    return inside("load_with_transformers.py", *(f"{example.model}" for example in made.values()), path=path)


def install_older(folder: Path) -> None:
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", str(rehearsal_environment.python())]
    done = subprocess.run(
        [*uv, "--compile-bytecode", "--target", str(folder), "transformers==4.51.3"],
        capture_output=True,
        text=True,
        check=False,
        env=fetching(),
    )
    if done.returncode:
        cannot_run(f"an older transformers could not be installed: {done.stderr.strip()[-200:]}")


PROMPT = "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n"
OF_TEXT = {
    "trouble": [],
    "tokens": 512,
    "prompt": PROMPT,
    "again": "caf\u00e9 3 + 4\n\n",
    "saved as": "torch.bfloat16",
}
LOADED = {
    "qwen2": OF_TEXT | {"class": "Qwen2ForCausalLM"},
    "qwen3": OF_TEXT | {"class": "Qwen3ForCausalLM"},
    "qwen2.5-vl": OF_TEXT | {"class": "Qwen2_5_VLForConditionalGeneration", "of a picture": 6},
}


def test_verl_datasets_read_the_rows(made: dict[str, Tiny]) -> None:
    loaded = inside(
        "read_with_verl.py",
        *(str(example.model.parent) for example in made.values()),
        path=[rehearsal_environment.pictures()],
    )
    of_text = {
        "rows": 2,
        "prompt": ["user"],
        "tools": [],
        "loaded": [],
        "learnt": "Ann has 2 + 2 = 4 apples.\n#### 4<|im_end|>\n",
    }
    call = '<tool_call>\n{"name": "add", "arguments": {"left": 2, "right": 2}}\n</tool_call><|im_end|>\n'
    assert loaded == {
        "qwen2": of_text,
        "qwen3": of_text
        | {
            "prompt": ["system", "user", "assistant", "user"],
            "tools": ["add"],
            "loaded": ["add 7"],
            "learnt": call + str(of_text["learnt"]),
        },
        "qwen2.5-vl": of_text | {"prompt": ["user", "image"]},
    }


def test_vllm_loads_all_shapes_and_generates(made: dict[str, Tiny]) -> None:
    loaded = inside(
        "load_with_vllm.py",
        *(str(example.model) for example in made.values()),
        path=[rehearsal_environment.pictures()],
    )
    assert loaded == {shape: [8, 8] for shape in MADE}


def test_check_finds_no_fault_in_the_data(made: dict[str, Tiny], here: Doctor, tmp_path: Path) -> None:
    for example in made.values():
        named = [word for file in (example.train, example.validation) for word in ("--data", str(file))]
        found = judged(here, tmp_path, *named, "--model", str(example.model))
        assert found == {}, example.kind


@pytest.mark.parametrize("version", [thorough("0.4.1"), thorough("0.6.1"), "0.8.0"])
def test_columns_match_the_named_verl(
    version: str, real: Interpreter, here: Doctor, tmp_path: Path, wheel_tree: Callable[[str, str], Path]
) -> None:
    verl = wheel_tree("verl", version) / "verl"
    tiny = make(Machine(), real, tmp_path / "tiny", kind="multi-turn", rows=3, verl=verl)
    assert isinstance(tiny, Tiny)
    command = ["python", "-m", "verl.trainer.main_ppo", *render.overrides(tiny)]
    assert judged(here, tmp_path, "--verl", str(verl), "--", *command) == {}


def judged(here: Doctor, cwd: Path, *arguments: str) -> dict[str, Any]:
    """The rules about data and models that do not pass, with their findings."""
    questions = [
        "check",
        "--python",
        str(rehearsal_environment.python()),
        "--select",
        "DATA,LOAD104,LOAD105",
        "--format",
        "json",
    ]
    done = here(*questions, *arguments, cwd=cwd)
    results = json.loads(done.stdout)["results"]
    assert any(result["status"] == "pass" for result in results)
    return {
        result["code"]: result for result in results if result["status"] not in {"pass", "not_applicable"}
    }


def test_command_reports_the_written_files(here: Doctor, tmp_path: Path) -> None:
    environment = rehearsal_environment.python().parent.parent
    done = here("tiny", "--python", str(environment), "--rows", "5", "new", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 rows for training with rewards" in done.stdout
    assert f"actor_rollout_ref.model.path={tmp_path}/new/model" in done.stdout
    assert names_in(tmp_path) == ["new"]
    assert names_in(tmp_path / "new") == [
        "model", "sft_train.parquet", "sft_validation.parquet", "train.parquet", "validation.parquet",
    ]  # fmt: skip


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def inside(script: str, *arguments: str, path: tuple[Path, ...] | list[Path]) -> dict[str, Any]:
    """JSON in the last line of a `tiny_loaders` script, run in the working environment."""
    done = subprocess.run(
        [str(rehearsal_environment.python()), str(LOADERS / script), *arguments],
        env={
            **os.environ,
            **rehearsal_environment.variables(),
            "PYTHONDONTWRITEBYTECODE": "1",  # verl imports a file of the folder whose bytes are compared
            "PYTHONPATH": os.pathsep.join(map(str, path)),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))
