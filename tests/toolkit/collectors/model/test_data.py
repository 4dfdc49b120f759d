"""Data files: location, content, and verl's demands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.environment import fetching
from support.environments import interpreter, site_packages
from support.kept import cannot_run, kept
from support.miniatures.source_trees import write

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Word
from verl_doctor.toolkit.collectors.model.data_demands import (
    ConversationDemands,
    DataDemands,
    ScoredSources,
    conversation_demands,
    data_demands,
    scored_sources,
)
from verl_doctor.toolkit.collectors.model.data_files import DataFile, DataFiles, data_files
from verl_doctor.toolkit.collectors.model.data_tables import Column, DataTables, Table, data_tables
from verl_doctor.toolkit.collectors.model.datasets_features import DatasetsFeatures, datasets_features
from verl_doctor.toolkit.collectors.model.model import LFS_MARK
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine, Output
from verl_doctor.toolkit.probes import data as data_probe
from verl_doctor.toolkit.target import Target

TARGET = Target(Path("/env/bin/python"), "--python")
NO_LAUNCH = Absent("no launch script")
NOT_COMPOSED = Unknown("not composed")
PARQUET = b"PAR1 some bytes PAR1"


def launched(*words: str, module: str = "verl.trainer.main_ppo") -> Launch:
    return Launch((), command=Command(module, tuple(Word(text, "run.sh", 4) for text in words), "run.sh", 3))


def look(tmp_path: Path, launch: Launch | Unknown = NO_LAUNCH, *data: str) -> dict[str, tuple[str, str]]:
    target = replace(TARGET, data=tuple(tmp_path / name for name in data))
    found = data_files.collect(Machine({"HOME": str(tmp_path)}, tmp_path), target, launch, NOT_COMPOSED)
    assert isinstance(found, DataFiles)
    return {Path(file.path).name: (file.role, file.trouble) for file in found.files}


def test_files_are_identified_by_their_first_and_last_bytes(tmp_path: Path) -> None:
    contents = {
        "good.parquet": PARQUET, "pointer.parquet": LFS_MARK + b"v1\n", "empty.parquet": b"", "text.parquet": b"hello there",
        "cut.parquet": PARQUET[:-3], "short.parquet": b"PAR1", "rows.jsonl": b"{}\n",
    }  # fmt: skip
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.parquet").mkdir()
    os.mkfifo(tmp_path / "pipe.parquet")
    found = look(tmp_path, NO_LAUNCH, *contents, "folder.parquet", "pipe.parquet", "gone.parquet")
    assert {name: trouble for name, (_, trouble) in found.items()} == {
        "good.parquet": "", "pointer.parquet": "pointer", "empty.parquet": "empty", "text.parquet": "not parquet",
        "cut.parquet": "cut off", "short.parquet": "cut off", "rows.jsonl": "", "folder.parquet": "folder",
        "pipe.parquet": "special", "gone.parquet": "missing",
    }  # fmt: skip


def test_data_files_are_read_from_the_command(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet", "c.parquet"):
        (tmp_path / name).write_bytes(PARQUET)
    command = launched("data.train_files=['~/a.parquet', $HOME/b.parquet]", "data.val_files=c.parquet")
    assert look(tmp_path, command) == {
        "a.parquet": ("train", ""), "b.parquet": ("train", ""), "c.parquet": ("val", "")
    }  # fmt: skip


def test_job_that_hydra_moves_does_not_find_a_relative_path(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(PARQUET)
    launch = launched("data.train_files=train.parquet", f"data.val_files={tmp_path}/train.parquet")
    tree = {"data": {"train_files": "", "val_files": ""}}
    moves = "hydra.job.chdir=True"
    for words, trouble in (
        ((moves,), "missing"),
        ((), ""),
        ((moves, "hydra.run.dir=."), ""),
        ((moves, "hydra.run.dir=${oc.env:PWD}"), ""),
    ):
        composed = configured(*words, tree=tree)[0]
        found = data_files.collect(Machine({"HOME": str(tmp_path)}, tmp_path), TARGET, launch, composed)
        assert isinstance(found, DataFiles)
        assert [file.trouble for file in found.files] == [trouble, ""]


@pytest.mark.parametrize(
    ("program", "read"), [("main_ppo", ["train", "val"]), ("main_generation_server", ["train"])]
)
def test_defaults_of_a_program_that_only_generates_are_not_missed(
    tmp_path: Path, program: str, read: list[str]
) -> None:
    (tmp_path / "a.parquet").write_bytes(PARQUET)
    tree = {"data": {"train_files": "", "val_files": "/gone.parquet"}}
    composed = replace(
        *configured("data.train_files=a.parquet", tree=tree), program=f"/env/verl/trainer/{program}.py"
    )
    launch = launched("data.train_files=a.parquet", module=f"verl.trainer.{program}")
    found = data_files.collect(Machine({}, tmp_path), TARGET, launch, composed)
    assert isinstance(found, DataFiles)
    assert [file.role for file in found.files] == read


@pytest.mark.parametrize(
    ("source", "own", "trouble"),
    [
        ("pd.read_parquet(file)", "null", "not parquet"),
        ("pd.read_parquet(file)", "mine.py", ""),
        ("pd.read_parquet(file) if parquet else pd.read_json(file)", "null", ""),
    ],
)
def test_fine_tuning_that_reads_every_file_as_parquet(
    tmp_path: Path, source: str, own: str, trouble: str
) -> None:
    (tmp_path / "talks.jsonl").write_text("{}\n")
    dataset = tmp_path / "verl/utils/dataset/multiturn_sft_dataset.py"
    dataset.parent.mkdir(parents=True)
    dataset.write_text(source)
    tree = {"data": {"train_files": "", "custom_cls": {"path": None}}}
    composed = configured(f"data.custom_cls.path={own}", tree=tree)[0]
    composed = replace(composed, program=str(tmp_path / "verl/trainer/sft_trainer.py"))
    launch = launched("data.train_files=talks.jsonl", module="verl.trainer.sft_trainer")
    found = data_files.collect(Machine({}, tmp_path), TARGET, launch, composed)
    assert isinstance(found, DataFiles)
    assert [file.trouble for file in found.files] == [trouble]


def of_fine_tuning(folder: Path, *words: str) -> DataFiles:
    """Return the files of a job whose data set reads every file as Parquet."""
    dataset = folder / "verl/utils/dataset/multiturn_sft_dataset.py"
    dataset.parent.mkdir(parents=True)
    dataset.write_text("pd.read_parquet(file)")
    composed = configured(tree={"data": {"train_files": "", "custom_cls": {"path": None}}})[0]
    composed = replace(composed, program=str(folder / "verl/trainer/sft_trainer.py"))
    found = data_files.collect(
        Machine({}, folder), TARGET, launched(*words, module="verl.trainer.sft_trainer"), composed
    )
    assert isinstance(found, DataFiles)
    return found


def test_fine_tuning_reads_the_tables_of_a_folder(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.json", "split=1/c.parquet", "_SUCCESS", ".a.crc", "_old/d.parquet"):
        (tmp_path / "rows" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "rows" / name).write_bytes(PARQUET)
    (tmp_path / "none").mkdir()
    found = of_fine_tuning(tmp_path, "data.train_files=rows", "data.val_files=none")
    assert [(Path(file.path).name, file.role, file.kind, file.trouble) for file in found.files] == [
        ("a.json", "train", "parquet", ""),
        ("b.parquet", "train", "parquet", ""),
        ("c.parquet", "train", "parquet", ""),
        ("none", "val", "parquet", "folder"),
    ]
    assert look(tmp_path, launched("data.train_files=rows")) == {"rows": ("train", "folder")}


def test_verl_refuses_a_folder_with_a_slash_at_its_end(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows/a.parquet").write_bytes(PARQUET)
    assert [file.trouble for file in of_fine_tuning(tmp_path, "data.train_files=rows/").files] == ["folder"]


def test_reader_of_a_table_is_chosen_by_its_kind() -> None:
    seen: list[Sequence[str]] = []

    def run(argv: Sequence[str], environ: Mapping[str, str], timeout: float) -> Output:
        seen.append(argv)
        return responding([{"error": "no"}, {"error": "no"}])(argv, environ, timeout)

    files = (replace(GOOD, path="/data/a.json"), replace(GOOD, path="/data/a.json", kind="json"))
    data_tables.collect(Machine({}, runner=run), DataFiles(files), interpreter(), NO_LAUNCH, NOT_COMPOSED)
    assert list(seen[0][-4:]) == ["parquet", "/data/a.json", "json", "/data/a.json"]


def test_glob_pattern_is_expanded(tmp_path: Path) -> None:
    for name in ("a-0.parquet", "a-1.parquet", "b.parquet"):
        (tmp_path / name).write_bytes(PARQUET)
    assert set(look(tmp_path, launched("data.train_files='a-*.parquet'"))) == {"a-0.parquet", "a-1.parquet"}
    assert look(tmp_path, launched("data.train_files='c-*.parquet'")) == {"c-*.parquet": ("train", "missing")}


def test_remote_or_undetermined_paths_are_not_judged(tmp_path: Path) -> None:
    machine = Machine({}, tmp_path)
    away = data_files.collect(
        machine, TARGET, launched("data.train_files=hdfs://store/a.parquet"), NOT_COMPOSED
    )
    assert isinstance(away, Absent)
    assert "hdfs://store/a.parquet" in away.reason
    command = Command("main", (Word(None, "run.sh", 4, "data.train_files=$TRAIN"),), "run.sh", 3)
    undetermined = data_files.collect(machine, TARGET, Launch((), command=command), NOT_COMPOSED)
    assert isinstance(undetermined, Unknown)
    assert not isinstance(undetermined, Absent)
    assert isinstance(data_files.collect(machine, TARGET, NO_LAUNCH, NOT_COMPOSED), Absent)


def responding(answer: Any, code: int = 0) -> Callable[[Sequence[str], Mapping[str, str], float], Output]:
    def run(argv: Sequence[str], _environ: Mapping[str, str], _timeout: float) -> Output:
        return Output(code, f"noise\n{argv[3]}{json.dumps(answer)}\nnoise", "ModuleNotFoundError: x", 0.1)

    return run


def described(answer: Any, *files: DataFile) -> DataTables | Unknown:
    machine = Machine({}, runner=responding(answer))
    found = data_tables.collect(machine, DataFiles(files), interpreter(), NO_LAUNCH, NOT_COMPOSED)
    assert isinstance(found, (DataTables, Unknown))
    return found


GOOD = DataFile("/data/a.parquet", "train", "data.train_files", "parquet")


def test_child_output_becomes_tables() -> None:
    answer = {"rows": 3, "columns": [["prompt", "string"]], "features": ["List"], "sources": ["gsm8k"]}
    found = described([answer], GOOD, replace(GOOD, path="/data/b.parquet", trouble="missing"))
    assert found == DataTables((Table(GOOD, 3, (Column("prompt", "string"),), ("List",), ("gsm8k",)),))
    broken = described([{"error": "ArrowInvalid: no"}], GOOD)
    assert isinstance(broken, DataTables)
    assert (broken.tables[0].unreadable, broken.of("train")) == ("ArrowInvalid: no", ())


@pytest.mark.parametrize("answer", [[{"lacks": "pyarrow"}], [], "nonsense"])
def test_missing_child_output_is_unknown(answer: Any) -> None:
    found = described(answer, GOOD)
    assert isinstance(found, Unknown)
    assert not isinstance(found, Absent)


def test_unreadable_files_are_not_queried() -> None:
    assert isinstance(described([], replace(GOOD, trouble="pointer")), Absent)


def test_json_description_contains_no_values(tmp_path: Path) -> None:
    row = {"data_source": "gsm8k", "prompt": [{"role": "user", "content": "my secret"}], "n": 1, "x": None}
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(row)}\n\n{json.dumps({**row, 'x': 2.5})}\n", "utf-8")
    found = data_probe.describe(str(path), "data_source", "jsonl")
    assert (found["rows"], found["sources"]) == (2, ["gsm8k"])
    assert dict(found["columns"]) == {
        "data_source": "string", "prompt": "list<struct<role: string, content: string>>", "n": "int64", "x": "double"
    }  # fmt: skip
    assert "my secret" not in json.dumps(found)
    (tmp_path / "rows.json").write_text(json.dumps([row] * 3), "utf-8")
    assert data_probe.describe(str(tmp_path / "rows.json"), "data_source", "json")["rows"] == 3


def test_broken_json_is_reported(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{\n", "utf-8")
    assert data_probe.describe(str(tmp_path / "rows.jsonl"), "x", "jsonl")["error"].startswith(
        "JSONDecodeError"
    )


SCORES = """
def default_compute_score(data_source, solution_str, ground_truth):
    if data_source == "openai/gsm8k":
        from . import gsm8k
        res = gsm8k.compute_score(solution_str)
    elif data_source in ["math", "math_dapo"] or data_source.startswith("aime"):
        res = 1
    else:
        raise NotImplementedError(f"{data_source=}")
    return float(res)
"""
VERL = {
    "utils/dataset/rl_dataset.py": 'readers = {".parquet": 1, ".json": 2, ".jsonl": 3}\n',
    "utils/reward_score/__init__.py": SCORES,
    "workers/reward_manager/naive.py": 'source = item.non_tensor_batch[self.reward_fn_key]\ntruth = item.non_tensor_batch["reward_model"]["ground_truth"]\n',
    "trainer/config/data/legacy_data.yaml": "prompt_key: prompt\ntrain_batch_size: 1024  # rows\n",
}


def verl(tmp_path: Path, others: Mapping[str, str] = VERL) -> VerlTrees:
    folder = write(tmp_path / "verl", {**VERL, **others})
    return VerlTrees(Tree(str(folder), "verl", "0.9.1", "--verl"), "it was named")


def demanded(tmp_path: Path, *words: str) -> DataDemands:
    found = data_demands.collect(verl(tmp_path), launched(*words) if words else NO_LAUNCH, NOT_COMPOSED)
    assert isinstance(found, DataDemands)
    return found


def test_default_demands_of_verl(tmp_path: Path) -> None:
    found = demanded(tmp_path)
    assert (found.prompt, found.source, found.truth) == ("prompt", "data_source", "reward_model.ground_truth")
    assert (found.kinds, found.batch, found.own_score) == (("parquet", "json", "jsonl"), 1024, False)
    assert "by default" in found.batch_from


def test_settings_of_the_command_change_the_demands(tmp_path: Path) -> None:
    words = (
        "data.prompt_key=question",
        "data.train_batch_size=8",
        "data.train_max_samples=4",
        "data.reward_fn_key=s",
    )
    found = demanded(tmp_path, *words)
    assert (found.prompt, found.source, found.batch, found.most_rows) == ("question", "s", 8, 4)
    assert demanded(tmp_path, "data.train_batch_size=8", "+data.gen_batch_size=16").batch == 16


def test_reward_manager_that_reads_a_fixed_column(tmp_path: Path) -> None:
    manager = {
        "experimental/reward_loop/reward_manager/naive.py": 'source = item.non_tensor_batch["data_source"]\n'
    }
    found = data_demands.collect(verl(tmp_path, manager), launched("data.reward_fn_key=s"), NOT_COMPOSED)
    assert isinstance(found, DataDemands)
    assert (found.source, found.source_by) == ("data_source", "")


def test_custom_reward_changes_the_demands(tmp_path: Path) -> None:
    function = demanded(tmp_path, "custom_reward_function.path=my.py")
    assert (function.source, function.own_score) == ("data_source", True)
    by_model = demanded(tmp_path, "reward_model.enable=True")
    assert (by_model.source, by_model.truth) == ("", "")


def test_other_trainers_and_datasets_are_not_judged(tmp_path: Path) -> None:
    trees = verl(tmp_path)
    for launch in (launched("data.custom_cls.path=my.py"), launched(module="verl.trainer.sft_trainer")):
        assert isinstance(data_demands.collect(trees, launch, NOT_COMPOSED), Absent)


def test_programs_with_parts_of_their_own_or_without_training_demand_nothing(tmp_path: Path) -> None:
    trees, composed = verl(tmp_path), configured()[0]
    for other in (
        replace(composed, own_parts=True),
        replace(composed, program="/env/verl/trainer/main_eval.py"),
    ):
        assert isinstance(data_demands.collect(trees, launched(), other), Absent)
    assert isinstance(data_demands.collect(trees, launched(), composed), DataDemands)


def test_columns_are_not_demanded_where_the_users_configuration_is_unknown(tmp_path: Path) -> None:
    launch = launched("--config-path=/not/here", "data.train_files=a.parquet")
    assert isinstance(data_demands.collect(verl(tmp_path), launch, NOT_COMPOSED), Absent)


def test_older_verl_reads_only_parquet(tmp_path: Path) -> None:
    trees = verl(tmp_path, {"utils/dataset/rl_dataset.py": 'load_dataset("parquet")\n'})
    found = data_demands.collect(trees, NO_LAUNCH, NOT_COMPOSED)
    assert isinstance(found, DataDemands)
    assert found.kinds == ("parquet",)


def test_values_that_need_a_processor(tmp_path: Path) -> None:
    source = 'load(".jsonl")\nself.image_key\nself.video_key\nassert self.processor is not None, "needed"\n'
    trees = verl(tmp_path, {"utils/dataset/rl_dataset.py": source})
    found = data_demands.collect(trees, NO_LAUNCH, NOT_COMPOSED)
    assert isinstance(found, DataDemands)
    assert (found.media, found.filters) == (("images", "videos"), True)


@pytest.mark.parametrize(("source", "aligns"), [("datasets.concatenate_datasets(frames)", True), ("pd.concat(frames)", False)])  # fmt: skip
def test_verl_that_joins_tables_with_datasets(tmp_path: Path, source: str, *, aligns: bool) -> None:
    found = data_demands.collect(verl(tmp_path, {"utils/dataset/rl_dataset.py": source}), NO_LAUNCH, NOT_COMPOSED)  # fmt: skip
    assert isinstance(found, DataDemands)
    assert found.aligns is aligns


@pytest.mark.parametrize(
    ("condition", "words", "media"),
    [
        ("if self.image_key not in example and self.video_key not in example:", (), ("images", "videos")),
        ("if self.image_key not in example and self.video_key not in example:", ("+data.image_key=photos",), ("photos", "videos")),
        ("if self.image_key not in example and self.video_key not in example:", ("+data.custom_cls.path=my.py",), None),
        ("if not example.get(self.image_key):", (), None),
    ],
)  # fmt: skip
def test_columns_that_need_a_processor_even_when_empty(
    tmp_path: Path, condition: str, words: tuple[str, ...], media: tuple[str, ...] | None
) -> None:
    source = f"{condition}\n    pass\nassert self.processor is not None\n"
    trees = verl(tmp_path, {"utils/dataset/multiturn_sft_dataset.py": source})
    (configuration,) = configured(*words, tree={"data": {"messages_key": "messages"}})
    found = conversation_demands.collect(trees, configuration)
    assert (found.media if isinstance(found, ConversationDemands) else None) == media


def test_reward_function_of_verl_is_followed_for_each_source(tmp_path: Path) -> None:
    sources = ("openai/gsm8k", "gsm8k", "math", "aime24", "mine")
    tables = DataTables((Table(GOOD, 3, sources=sources),))
    found = scored_sources.collect(verl(tmp_path), demanded(tmp_path), tables)
    assert isinstance(found, ScoredSources)
    assert found.refused == ("gsm8k", "mine")
    assert found.names == ("openai/gsm8k", "math", "math_dapo")
    assert found.column == "data_source"


def test_undetermined_reward_function_rejects_no_source(tmp_path: Path) -> None:
    odd = "def default_compute_score(data_source):\n    return TABLE[data_source]()\n"
    trees = verl(tmp_path, {"utils/reward_score/__init__.py": odd})
    tables = DataTables((Table(GOOD, 3, sources=("x",)),))
    found = scored_sources.collect(trees, demanded(tmp_path / "plain"), tables)
    assert isinstance(found, ScoredSources)
    assert (found.refused, found.column) == ((), "")


def test_custom_reward_function_is_not_followed(tmp_path: Path) -> None:
    demands = demanded(tmp_path, "custom_reward_function.path=my.py")
    assert isinstance(scored_sources.collect(verl(tmp_path), demands, DataTables(())), Absent)


FEATURES = """
_FEATURE_TYPES: dict[str, FeatureType] = {
    Value.__name__: Value,
    LargeList.__name__: LargeList,
}
class Sequence:
    pass
"""


def test_features_supported_by_datasets_are_read(tmp_path: Path) -> None:
    site = site_packages(tmp_path)
    write(site / "datasets", {"features/features.py": FEATURES})
    found = datasets_features.collect(interpreter(site), Unknown("not asked"))
    assert isinstance(found, DatasetsFeatures)
    assert found.names == ("Value", "LargeList", "Sequence")
    assert isinstance(datasets_features.collect(interpreter(tmp_path), Unknown("")), Absent)


MAKE = """
import sys, pyarrow as pa, pyarrow.parquet as pq
rows = [{"data_source": f"s{i % 3}", "prompt": [{"role": "user", "content": "my secret"}], "extra_info": {"index": i},
         "agent_name": "tool_agent", "images": [], "videos": ["a.mp4"] if i else None}
        for i in range(20)]
rows[7]["prompt"] = None
table = pa.Table.from_pylist(rows).append_column("kind", pa.array(["a"] * 20).dictionary_encode())
features = b'{"info": {"features": {"prompt": {"feature": {"_type": "Value"}, "_type": "List"}}}}'
pq.write_table(table.replace_schema_metadata({b"huggingface": features}), sys.argv[1])
"""


@pytest.fixture(scope="module")
def pyarrow() -> Path:
    """A folder with a real pyarrow for the running Python, installed once."""

    def install(folder: Path) -> None:
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
        done = subprocess.run(
            [*command, "--target", str(folder), "pyarrow>=17"],
            capture_output=True,
            text=True,
            check=False,
            env=fetching(),
        )
        if done.returncode:
            cannot_run(f"pyarrow could not be installed: {done.stderr.strip()[-200:]}")

    return kept(f"pyarrow/{sys.version_info.major}.{sys.version_info.minor}", install)


TALKS = """
import sys
import pyarrow as pa, pyarrow.parquet as pq
talk = [{"role": "user", "content": "hi"}]
pq.write_table(pa.table({"messages": pa.array([talk, [], None, [], talk])}), sys.argv[1])
"""


@pytest.mark.real
def test_talks_without_messages_are_counted(tmp_path: Path, pyarrow: Path) -> None:
    path = tmp_path / "train.parquet"
    environ = {**os.environ, "PYTHONPATH": str(pyarrow)}
    subprocess.run([sys.executable, "-c", TALKS, str(path)], check=True, env=environ)
    python = replace(interpreter(), executable=sys.executable)
    files = DataFiles((replace(GOOD, path=str(path)),))
    found = data_tables.collect(Machine(environ), files, python, NO_LAUNCH, NOT_COMPOSED)
    assert isinstance(found, DataTables)
    (table,) = found.tables
    assert (table.nulls, table.empty) == ((("messages", 1),), (("messages", 2),))


@pytest.mark.real
def test_real_parquet_file_is_described(tmp_path: Path, pyarrow: Path) -> None:
    path = tmp_path / "train.parquet"
    environ = {**os.environ, "PYTHONPATH": str(pyarrow)}
    subprocess.run([sys.executable, "-c", MAKE, str(path)], check=True, env=environ)
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1" + b"\0" * 200 + b"PAR1")
    files = (replace(GOOD, path=str(path)), replace(GOOD, path=str(tmp_path / "damaged.parquet")))
    python = replace(interpreter(), executable=sys.executable)
    found = data_tables.collect(Machine(environ), DataFiles(files), python, NO_LAUNCH, NOT_COMPOSED)
    assert isinstance(found, DataTables)
    good, damaged = found.tables
    assert (good.rows, good.features, set(good.sources)) == (20, ("List", "Value"), {"s0", "s1", "s2"})
    assert {column.name: column.kind for column in good.columns} == {
        "data_source": "string", "prompt": "list<struct<role: string, content: string>>",
        "extra_info": "struct<index: int64>", "kind": "string",
        "agent_name": "string", "images": "list<null>", "videos": "list<string>",
    }  # fmt: skip
    assert (good.agents, good.nulls) == (("tool_agent",), (("prompt", 1),))
    assert set(good.filled) == {"data_source", "prompt", "extra_info", "agent_name", "videos", "kind"}
    assert damaged.unreadable
    assert "my secret" not in repr(found)


@pytest.mark.real
@pytest.mark.parametrize(("version", "has_list"), [("3.6.0", False), ("4.0.0", True)])
def test_real_releases_of_datasets(
    version: str, has_list: bool, wheel_tree: Callable[[str, str], Path]
) -> None:
    found = datasets_features.collect(interpreter(wheel_tree("datasets", version)), Unknown("not asked"))
    assert isinstance(found, DatasetsFeatures)
    assert {"Value", "Sequence", "Audio"} <= set(found.names)
    assert ("List" in found.names) is has_list


@pytest.mark.real
@pytest.mark.parametrize(
    ("version", "kinds"),
    [("0.4.1", ("parquet",)), ("0.6.1", ("parquet",)), ("0.9.1", ("parquet", "json", "jsonl"))],
)
def test_real_releases_of_verl(
    version: str, kinds: tuple[str, ...], wheel_tree: Callable[[str, str], Path]
) -> None:
    trees = VerlTrees(Tree(str(wheel_tree("verl", version) / "verl"), "verl", version, "--verl"), "")
    demands = data_demands.collect(trees, NO_LAUNCH, NOT_COMPOSED)
    assert isinstance(demands, DataDemands)
    assert (demands.kinds, demands.truth, demands.batch) == (kinds, "reward_model.ground_truth", 1024)
    tables = DataTables((Table(GOOD, 3, sources=("openai/gsm8k", "aime24", "codecontests", "mine")),))
    found = scored_sources.collect(trees, demands, tables)
    assert isinstance(found, ScoredSources)
    assert found.refused == ("mine",)


def test_metadata_and_lines_that_are_nested_deeply_are_no_fault_of_the_file(tmp_path: Path) -> None:
    """This process reads them with another limit than the job does."""
    lines = tmp_path / "train.jsonl"
    lines.write_text("[" * 100_000 + "\n")
    with pytest.raises(RecursionError):
        data_probe.describe(str(lines), "data_source", "jsonl")


def test_file_that_unpacks_to_more_than_the_limit_is_not_described(tmp_path: Path) -> None:
    lines = tmp_path / "train.jsonl"
    with lines.open("wb") as file:
        file.truncate(8 << 30)
    limited = Path(data_probe.__file__).read_text("utf-8").replace("4 * 1024**3", "64 * 1024**2")
    words = [sys.executable, "-c", limited, "token", "data_source", "jsonl", str(lines)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("MemoryError\n")
