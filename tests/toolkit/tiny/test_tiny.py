"""Tiny data and models, without the libraries that read them: refusals, leftovers, and the bytes."""

from __future__ import annotations

import ast
import json
import os
import shlex
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.environments import interpreter
from support.miniatures.source_trees import write
from support.running import Doctor

from verl_doctor.toolkit.commands.tiny import render
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.sources.hydra.grammar import parse_override
from verl_doctor.toolkit.tiny import picture, tokenizer, weights
from verl_doctor.toolkit.tiny import rows as tiny_rows
from verl_doctor.toolkit.tiny.columns import Columns, columns, tool_of
from verl_doctor.toolkit.tiny.shape import SHAPES
from verl_doctor.toolkit.tiny.tiny import Tiny, make

NEW = {
    "utils/dataset/rl_dataset.py": """
        class RLHFDataset:
            def __init__(self, config):
                self.prompt_key = config.get("prompt_key", "question")
                self.image_key = config.get("image_key", "pictures")
                self.cache = config.get("cache_dir", "~/.cache")

            def __getitem__(self, item):
                row = self.rows[item]
                row["kwargs"] = row.get("extra_info", {}).get("tools_kwargs", {})
        """,
    "utils/dataset/multiturn_sft_dataset.py": """
        class MultiTurnSFTDataset:
            def __init__(self, config):
                self.messages_key = config.get("messages_key", "talk")
                self.tools_key = config.get("tools_key", "tools")
        """,
    "utils/reward_score/__init__.py": """
        def default_compute_score(data_source, answer):
            if data_source == "ours/sums":
                return 1.0
        """,
    "experimental/agent_loop/tool_agent_loop.py": """
        @register("tool_agent")
        class ToolAgentLoop:
            pass
        """,
}
OLD = {
    "utils/dataset/rl_dataset.py": """
        class RLHFDataset:
            def __init__(self, files, prompt_key="prompt", *, image_key="images", size=3):
                self.prompt_key = prompt_key
        """
}


def test_columns_are_read_from_the_sources(tmp_path: Path) -> None:
    assert columns(write(tmp_path / "verl", NEW)) == Columns(
        rewarded={"prompt_key": "question", "image_key": "pictures"},
        source="ours/sums",
        supervised={"messages_key": "talk", "tools_key": "tools"},
        info=("tools_kwargs",),
        agent="tool_agent",
    )


def test_columns_may_be_parameter_defaults(tmp_path: Path) -> None:
    found = columns(write(tmp_path / "verl", OLD))
    assert found == Columns({"prompt_key": "prompt", "image_key": "images"}, source="")


@pytest.mark.parametrize("named", ['== "ours"', 'in ["ours", "b"]', 'in ("ours",)', 'in {"ours"}'])
def test_source_is_scored_by_the_tree(named: str, tmp_path: Path) -> None:
    score = f"def default_compute_score(data_source):\n    if data_source {named}:\n        return 1.0\n"
    found = columns(write(tmp_path / "verl", {**OLD, "utils/reward_score/__init__.py": score}))
    assert isinstance(found, Columns)
    assert found.source == "ours"


@pytest.mark.parametrize("files", [{}, {"utils/dataset/rl_dataset.py": "def broken(:"}])
def test_unreadable_tree_has_no_columns(files: dict[str, str], tmp_path: Path) -> None:
    found = columns(write(tmp_path, files))
    assert isinstance(found, Unknown)
    assert "rl_dataset.py" in found.reason


NAMES = Columns(
    rewarded={"prompt_key": "question", "image_key": "pictures"},
    source="ours/sums",
    supervised={"messages_key": "talk", "tools_key": "functions", "image_key": "pictures"},
    info=("need_tools_kwargs", "tools_kwargs"),
    agent="tool_agent",
)


def test_text_rows_have_a_question_and_its_answer() -> None:
    rows = tiny_rows.rewarded(NAMES, "text", 40, 0, "train")
    assert [row["extra_info"]["index"] for row in rows] == [*range(40)]
    for row in rows:
        ((question),) = row["question"]
        numbers = [int(word) for word in question["content"].split() if word.isdigit()]
        assert row["reward_model"] == {"style": "rule", "ground_truth": str(sum(numbers))}
        assert row["data_source"] == "ours/sums"


def test_validation_rows_differ_from_training_rows() -> None:
    question = [
        str(row["question"]) for first in (0, 7) for row in tiny_rows.rewarded(NAMES, "text", 7, first, "")
    ]
    assert len({*question}) == 14


def test_conversations_contain_what_the_tree_reads_for_tools() -> None:
    (row,) = tiny_rows.rewarded(NAMES, "multi-turn", 1, 0, "train")
    assert [turn["role"] for turn in row["question"]] == ["system", "user", "assistant", "user"]
    assert row["agent_name"] == "tool_agent"
    assert row["extra_info"]["need_tools_kwargs"] is True
    assert row["extra_info"]["tools_kwargs"] == {"add": {"create_kwargs": {"ground_truth": "4"}}}


def test_conversations_omit_fields_that_the_tree_does_not_read() -> None:
    (row,) = tiny_rows.rewarded(Columns({}, "source"), "multi-turn", 1, 0, "train")
    assert "agent_name" not in row
    assert {*row["extra_info"]} == {"split", "index", "question", "answer"}


def test_fine_tuning_conversations_call_the_tool_and_get_its_result() -> None:
    (row,) = tiny_rows.supervised(NAMES, "multi-turn", 1, 0)
    question, call, answer, solution = row["talk"]
    assert [turn["role"] for turn in row["talk"]] == ["user", "assistant", "tool", "assistant"]
    assert call["tool_calls"][0]["function"]["arguments"] == {"left": 2, "right": 2}
    assert answer["content"] == "4"
    assert {*question} == {*call} == {*answer} == {*solution}
    assert row["functions"][0]["function"]["name"] == "add"


def test_fine_tuning_rows_have_text_columns_if_the_tree_reads_them() -> None:
    names = {"messages_key": "talk", "prompt_key": "asked", "response_key": "answered"}
    (row,) = tiny_rows.supervised(Columns({}, "", supervised=names), "text", 1, 0)
    assert [turn["content"] for turn in row.pop("talk")] == [row["asked"], row["answered"]]
    del names["messages_key"]
    old = Columns({}, "", supervised=names)
    assert tiny_rows.supervised(old, "text", 1, 0) == [row]
    assert tiny_rows.supervised(old, "multi-turn", 1, 0) == []


def test_chosen_tool_can_be_loaded_by_the_tree(tmp_path: Path) -> None:
    new = tool_of(write(tmp_path / "new", {"tools/function_tool.py": "", "tools/gsm8k_tool.py": ""}))
    old = tool_of(write(tmp_path / "old", {"tools/gsm8k_tool.py": ""}))
    assert (new.file, new.setting) == ("tools.py", "actor_rollout_ref.rollout.multi_turn.function_tool_path")
    assert (old.file, old.setting) == ("tools.yaml", "actor_rollout_ref.rollout.multi_turn.tool_config_path")
    assert tool_of(tmp_path).file == ""
    defined = {node.name for node in ast.walk(ast.parse(new.content)) if isinstance(node, ast.FunctionDef)}
    assert defined == {new.name}
    (entry,) = yaml.safe_load(old.content)["tools"]
    assert entry["tool_schema"]["function"]["name"] == old.name


@pytest.mark.parametrize("files", [{}, {"tools/gsm8k_tool.py": ""}])
def test_call_has_the_arguments_of_the_tool(files: dict[str, str], tmp_path: Path) -> None:
    tool = tool_of(write(tmp_path, files))
    arguments, _ = tool.called(3, 4)
    assert [*arguments] == tool.schema["function"]["parameters"]["required"]


def test_no_fine_tuning_rows_without_a_matching_dataset() -> None:
    assert tiny_rows.supervised(Columns({}, ""), "text", 2, 0) == []


def test_image_rows_name_each_image_once() -> None:
    (row,) = tiny_rows.rewarded(NAMES, "image", 1, 0, "train")
    (learnt,) = tiny_rows.supervised(NAMES, "image", 1, 0)
    assert row["question"][0]["content"].count("<image>") == len(row["pictures"]) == 1
    assert learnt["talk"][0]["content"].count("<image>") == len(learnt["pictures"]) == 1


def test_image_is_a_complete_png() -> None:
    content = picture.plain(3, 2, (9, 8, 7))
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, rest = {}, content[8:]
    while rest:
        size, kind = struct.unpack(">I4s", rest[:8])
        assert struct.unpack(">I", rest[8 + size : 12 + size])[0] == zlib.crc32(rest[4 : 8 + size])
        chunks[kind], rest = rest[8 : 8 + size], rest[12 + size :]
    assert [*chunks] == [b"IHDR", b"IDAT", b"IEND"]
    assert struct.unpack(">IIBBBBB", chunks[b"IHDR"]) == (3, 2, 8, 2, 0, 0, 0)
    assert zlib.decompress(chunks[b"IDAT"]) == (b"\0" + b"\t\x08\x07" * 3) * 2


def read_safetensors(path: Path) -> dict[str, tuple[list[int], list[float]]]:
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    assert header.pop("__metadata__") == {"format": "pt"}
    assert size % 8 == 0
    body, at, found = content[8 + size :], 0, {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        assert (start, entry["dtype"]) == (at, "BF16")
        halves = [body[index : index + 2] for index in range(start, end, 2)]
        found[name] = (entry["shape"], [struct.unpack("<f", b"\0\0" + half)[0] for half in halves])
        at = end
    assert at == len(body)
    return found


def test_weights_are_small_random_numbers_norms_and_no_bias(tmp_path: Path) -> None:
    tensors = {"a.weight": (40, 50), "b.weight": (40, 50), "norm.weight": (4,), "a.bias": (3,)}
    weights.write(tmp_path / "one", tensors)
    found = read_safetensors(tmp_path / "one")
    assert {name: tuple(shape) for name, (shape, _) in found.items()} == tensors
    assert found["norm.weight"][1] == [1.0] * 4
    assert found["a.bias"][1] == [0.0] * 3
    drawn = found["a.weight"][1]
    assert max(map(abs, drawn)) <= 1 / 32
    assert len({*drawn}) > 200
    assert abs(sum(drawn) / len(drawn)) < 0.002
    assert drawn != found["b.weight"][1]


def test_weights_are_reproducible(tmp_path: Path) -> None:
    for name in ("one", "two"):
        weights.write(tmp_path / name, {"b": (3, 3), "a": (2, 2)})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("name", [*SHAPES])
def test_tokens_named_in_the_config_exist(name: str) -> None:
    config = SHAPES[name]().config
    tokens = {
        int(key): entry["content"]
        for key, entry in tokenizer.tokenizer_config()["added_tokens_decoder"].items()
    }
    assert max(tokens) == config["vocab_size"] - 1
    assert tokens[config["eos_token_id"]] == "<|im_end|>"
    for key, text in (("image_token_id", "<|image_pad|>"), ("vision_start_token_id", "<|vision_start|>")):
        assert tokens.get(config.get(key), text) == text


@pytest.fixture
def verl(tmp_path: Path) -> Path:
    return write(tmp_path / "verl", NEW)


def child(act: Callable[[Path], Any], code: int | None = 0) -> Machine:
    """A machine whose child does this with its folder and returns the result."""

    def run(argv: Sequence[str], environ: Mapping[str, str], timeout: float) -> Output:
        token, folder, order = argv[3:]
        assert environ["HF_HUB_OFFLINE"] == "1"
        assert json.loads(Path(order).read_text("utf-8"))["tables"]
        result = act(Path(folder))
        output = "" if result is None else f"noise\n{token}{json.dumps(result)}\n"
        return Output(code, output, "", 0.1)

    return Machine(runner=run)


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def writing(folder: Path) -> dict[str, Any]:
    (folder / "train.parquet").touch()
    return {"done": True}


def test_result_appears_completely_or_not_at_all(tmp_path: Path, verl: Path) -> None:
    found = make(child(writing), interpreter(), tmp_path / "new", verl=verl)
    assert isinstance(found, Tiny)
    assert found.model == tmp_path / "new" / "model"
    assert names_in(tmp_path) == ["new", "verl"]
    assert names_in(tmp_path / "new") == ["model", "train.parquet"]
    assert names_in(found.model) == [
        "config.json", "generation_config.json", "model.safetensors", "tokenizer_config.json",
    ]  # fmt: skip


def test_existing_folder_is_reused(tmp_path: Path, verl: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    before = (tmp_path / "there").stat()
    assert isinstance(make(child(writing), interpreter(), tmp_path / "there", verl=verl), Tiny)
    after = (tmp_path / "there").stat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert names_in(tmp_path / "there") == ["model", "train.parquet"]


@pytest.mark.parametrize(
    ("result", "code", "sentence"),
    [
        ({"lacks": "pyarrow"}, 0, "has no pyarrow, which the tiny files require; install it there"),
        ({"error": "OSError: No space left on device"}, 0, "could not be made: OSError: No space left on device"),
        (None, None, "could not be made: it did not end within 120 s"),
        (None, -11, "could not be made: the process was ended by signal 11"),
        ([1], 0, "could not be made"),
    ],
)  # fmt: skip
def test_failed_run_leaves_nothing(
    result: Any, code: int | None, sentence: str, tmp_path: Path, verl: Path
) -> None:
    found = make(
        child(lambda folder: (writing(folder), result)[1], code), interpreter(), tmp_path / "new", verl=verl
    )
    assert isinstance(found, Unknown)
    assert sentence in found.reason
    assert names_in(tmp_path) == ["verl"]


def test_failed_run_leaves_an_existing_folder_empty(tmp_path: Path, verl: Path) -> None:
    (tmp_path / "there").mkdir()
    assert isinstance(make(child(lambda _: None, 1), interpreter(), tmp_path / "there", verl=verl), Unknown)
    assert names_in(tmp_path / "there") == []


def test_interrupted_run_leaves_nothing(tmp_path: Path, verl: Path) -> None:
    def interrupted(folder: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(child(interrupted), interpreter(), tmp_path / "new", verl=verl)
    assert names_in(tmp_path) == ["verl"]


def test_folder_filled_in_the_meantime_is_left_alone(tmp_path: Path, verl: Path) -> None:
    def meanwhile(folder: Path) -> dict[str, Any]:
        (tmp_path / "new").mkdir()
        (tmp_path / "new" / "precious").touch()
        return writing(folder)

    found = make(child(meanwhile), interpreter(), tmp_path / "new", verl=verl)
    assert found == Unknown(f"{tmp_path / 'new'} cannot be written: Directory not empty")
    assert names_in(tmp_path / "new") == ["precious"]


def test_missing_libraries_are_detected_by_a_real_child(tmp_path: Path, verl: Path) -> None:
    python = replace(interpreter(), executable=sys.executable)
    found = make(Machine(), python, tmp_path / "new", verl=verl)
    assert isinstance(found, Unknown)
    assert found.reason.startswith(f"{sys.executable} has no pyarrow")
    assert names_in(tmp_path) == ["verl"]


def test_columns_are_undetermined_without_verl(tmp_path: Path) -> None:
    found = make(Machine(), interpreter(), tmp_path / "new")
    assert isinstance(found, Unknown)
    assert "has no verl" in found.reason


def test_transformers_without_the_model_type_is_named(tmp_path: Path, verl: Path) -> None:
    old = write(tmp_path / "transformers", {"models/qwen2/__init__.py": ""})
    python = replace(interpreter(), libraries=(("transformers", str(old)),))
    found = make(child(writing), python, tmp_path / "new", shape="qwen3", verl=verl)
    assert isinstance(found, Unknown)
    assert "it has no models/qwen3; choose another --model-shape" in found.reason
    assert isinstance(make(child(writing), python, tmp_path / "new", shape="qwen2", verl=verl), Tiny)


@pytest.mark.parametrize(
    "name", ["plain", "two words", "dötted", "a=b,c", "it's", 'a "quote"', "tail\\", 'b\\"', "{x}"]
)
def test_overrides_are_valid_for_hydra(name: str, tmp_path: Path) -> None:
    folder = Path("/data", name)
    made = Tiny(folder / "model", folder / "train.parquet", folder / "validation.parquet", "qwen2")
    words = render.overrides(made)
    read = {word.key: word.value for word in map(parse_override, words)}
    assert read["data.train_files"] == f"/data/{name}/train.parquet"
    assert read["actor_rollout_ref.model.path"] == f"/data/{name}/model"
    assert read["data.train_batch_size"] == 2


def test_report_names_the_written_files_and_the_next_commands(tmp_path: Path, verl: Path) -> None:
    def everything(folder: Path) -> dict[str, Any]:
        for name in ("train", "validation", "sft_train", "sft_validation"):
            (folder / f"{name}.parquet").write_bytes(bytes(2000))
        return {"done": True}

    write(verl, {"tools/function_tool.py": ""})
    made = make(child(everything), interpreter(), tmp_path / "a b", kind="multi-turn", rows=1, verl=verl)
    assert isinstance(made, Tiny)
    lines = render.lines(made, 80, ["--python", "/env"])
    assert lines[0] == f"wrote {tmp_path}/a b: 6.5 MiB"
    assert lines[1].split() == ["model/", "6.5", "MiB", "random", "Qwen2,", "3.4", "million", "parameters"]
    assert lines[2] == "  train.parquet           2.0 KiB  1 row for training with rewards"
    assert "  actor_rollout_ref.rollout.multi_turn.enable=True \\" in lines
    tool = f'actor_rollout_ref.rollout.multi_turn.function_tool_path="{tmp_path}/a b/tools.py"'
    assert f"  '{tool}'" in lines
    assert (tmp_path / "a b" / "tools.py").is_file()
    climb = lines[lines.index("Or run the smoke test with it:") + 1 :]
    assert climb[:2] == ["  verl-doctor smoke \\", "  --python /env \\"], "it is longer than a line"
    assert render.lines(made, None, ["--python", "/env"])[-1].startswith("  verl-doctor smoke --python /env ")
    assert shlex.split("\n".join(climb).replace("\\\n", "")) == [
        "verl-doctor", "smoke", "--python", "/env", "--model", f"{tmp_path}/a b/model", "--data", f"{tmp_path}/a b/train.parquet",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["full"], "full is not empty (it contains file); name a new folder"),
        (["full/file"], "full/file is not a folder; name a new one"),
        (["full/file/below"], "full/file/below is not a folder"),
        (["gone/new"], "gone/new cannot be created: the folder"),
        (["/proc/new"], "/proc/new cannot be created: /proc is the kernel's own (proc)"),
        ([""], "it is empty; is a variable unset?"),
        ([], "Missing argument 'DIR'"),
        (["new", "--rows", "0"], "0 is not in the range"),
        (["new", "--kind", "video"], "'video' is not one of"),
        (["new", "--model-shape", "llama"], "'llama' is not one of"),
        (
            ["new", "--kind", "image", "--model-shape", "qwen3"],
            "qwen3 does not accept images; remove --model-shape",
        ),
        (["new", "--python", "/nothing/here"], "/nothing/here"),
    ],
)
def test_unusable_input_is_refused_in_one_sentence(
    words: list[str], sentence: str, here: Doctor, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = here("tiny", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert names_in(tmp_path) == ["full"]


def begun(tmp_path: Path, verl: Path, folder: str) -> subprocess.Popen[bytes]:
    """A command that is in the middle of its work and does not come to an end."""
    write(
        tmp_path / "path",
        {
            "pyarrow.py": f"import os, time; os.symlink(str(os.getpid()), {str(tmp_path / 'begun')!r}); time.sleep(600)"
        },
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "verl_doctor.toolkit", "tiny", "--verl", str(verl), folder],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "path")},
        stderr=subprocess.PIPE,
    )
    while not (tmp_path / "begun").is_symlink():
        assert process.poll() is None
        time.sleep(0.05)
    return process


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_terminated_command_leaves_nothing(number: signal.Signals, tmp_path: Path, verl: Path) -> None:
    process = begun(tmp_path, verl, "new")
    process.send_signal(number)
    _, output = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert output.splitlines()[-1].startswith(b"verl-doctor: stopped"), output
    assert names_in(tmp_path) == ["begun", "path", "verl"]


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
def test_leftovers_of_a_killed_command_are_removed_by_the_next_run(
    there: bool, tmp_path: Path, verl: Path, here: Doctor
) -> None:
    if there:
        (tmp_path / "new").mkdir()
    place = tmp_path / "new" if there else tmp_path
    process = begun(tmp_path, verl, "new")
    (left,) = place.glob(".verl-doctor-*")
    other = tmp_path / "new" if there else tmp_path / "other"
    again = ("tiny", "--python", sys.executable, "--verl", verl, other)
    refused = here(*again, cwd=tmp_path)
    assert left.exists()
    assert refused.returncode == (2 if there else 3)
    process.kill()
    os.kill(int((tmp_path / "begun").readlink().name), signal.SIGKILL)  # no other process ends it now
    process.communicate(timeout=120)
    assert left.exists()
    assert "has no pyarrow" in here(*again, cwd=tmp_path).stderr
    assert not list(place.glob(".verl-doctor-*"))


def test_command_reports_missing_packages(here: Doctor, tmp_path: Path, verl: Path) -> None:
    done = here("tiny", "--python", sys.executable, "--verl", verl, "new", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "has no pyarrow" in done.stderr
    assert names_in(tmp_path) == ["verl"]
