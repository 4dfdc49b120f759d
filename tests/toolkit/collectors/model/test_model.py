"""Content of a model folder, and whether the libraries support it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dacite
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.environments import interpreter
from support.miniatures.source_trees import vllm
from support.trying import cases

from verl_doctor.toolkit.collectors.installed.trees import Tree, VllmTree
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch, Word
from verl_doctor.toolkit.collectors.model.model import LFS_MARK, BadFile, Model, model, read_model
from verl_doctor.toolkit.collectors.model.support import (
    NumberType,
    TransformersSupport,
    VllmSupport,
    number_type,
    transformers_support,
    vllm_support,
)
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target

QWEN = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "num_attention_heads": 14,
    "torch_dtype": "bfloat16",
}  # fmt: skip
READ = (
    "architectures", "model_type", "hidden_size", "num_attention_heads", "head_dim", "text_config", "llm_config",
    "auto_map", "vision_config", "kv_lora_rank", "torch_dtype", "dtype",
)  # fmt: skip
POINTER = LFS_MARK + b"v1\noid sha256:0\nsize 99\n"
NOT_COMPOSED = Unknown("not composed")
TARGET = Target(Path("/env/bin/python"), "--python")


def folder(tmp_path: Path, config: dict[str, Any] | str, **files: bytes) -> Path:
    text = config if isinstance(config, str) else json.dumps(config)
    (tmp_path / "config.json").write_text(text, "utf-8")
    for name, content in {"model_safetensors": b"weights", **files}.items():
        (tmp_path / name.replace("_", ".")).write_bytes(content)
    return tmp_path


def test_plain_model(tmp_path: Path) -> None:
    found = read_model(folder(tmp_path, QWEN), "--model")
    assert (found.architectures, found.model_type, found.head_size) == (("Qwen2ForCausalLM",), "qwen2", 64)
    assert (found.dtype, found.mla, found.has_vision, found.own_code) == ("bfloat16", False, False, False)
    assert not found.has_processor
    assert (found.bad_files, found.without_weights) == ((), False)


def test_explicit_head_size_is_used(tmp_path: Path) -> None:
    assert read_model(folder(tmp_path, {**QWEN, "head_dim": 128}), "--model").head_size == 128


def test_language_part_of_a_vision_model_is_read(tmp_path: Path) -> None:
    parts = {
        "architectures": ["X"],
        "model_type": "vl",
        "text_config": QWEN,
        "vision_config": {"hidden_size": 1280},
    }
    found = read_model(folder(tmp_path, parts), "--model")
    assert (found.model_type, found.head_size, found.has_vision, found.dtype) == ("vl", 64, True, "bfloat16")
    assert found.has_processor


def test_latent_attention_and_custom_code(tmp_path: Path) -> None:
    found = read_model(
        folder(tmp_path, {**QWEN, "kv_lora_rank": 512, "auto_map": {"AutoConfig": "c.C"}}), "--model"
    )
    assert (found.mla, found.own_code) == (True, True)


@pytest.mark.parametrize(
    ("named", "files", "lost"),
    [
        ("configuration_m.C", {}, "configuration_m.py"),
        ("configuration_m.C", {"configuration_m.py": b"class C: ..."}, ""),
        ("owner/name--configuration_m.C", {}, ""),
        ("..", {}, ""),
        (None, {}, ""),
    ],
)
def test_own_code_that_is_not_in_the_folder(
    tmp_path: Path, named: object, files: dict[str, bytes], lost: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    config = {**QWEN, "auto_map": {"AutoConfig": named, "AutoModel": "modeling_m.M"}}
    assert read_model(folder(tmp_path, config), "--model").code_elsewhere == lost


@pytest.mark.parametrize("config", [{}, {"num_attention_heads": 0, "hidden_size": "x"}, {"architectures": 3}])
def test_odd_configurations_are_read_without_results(tmp_path: Path, config: dict[str, Any]) -> None:
    found = read_model(folder(tmp_path, config), "--model")
    assert (found.head_size, found.architectures, found.bad_files) == (0, (), ())


@pytest.mark.parametrize(
    ("text", "trouble"), [(POINTER.decode(), "pointer"), ("{", "damaged"), ("[]", "damaged"), ("[" * 99999, "damaged")]
)  # fmt: skip
def test_invalid_configuration_is_reported(tmp_path: Path, text: str, trouble: str) -> None:
    (bad,) = read_model(folder(tmp_path, text), "--model").bad_files
    assert (bad.name, bad.trouble) == ("config.json", trouble)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(READ), inner, max_size=6),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=cases(5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=st.dictionaries(st.sampled_from(READ), JSON))
def test_no_configuration_breaks_the_reader(tmp_path: Path, config: dict[str, Any]) -> None:
    found = read_model(folder(tmp_path, config), "--model")
    assert found.head_size >= 0
    assert (
        dacite.from_dict(Model, json.loads(json.dumps(asdict(found))), dacite.Config(cast=[tuple])) == found
    )


def test_empty_folder(tmp_path: Path) -> None:
    found = read_model(tmp_path, "--model")
    assert (found.bad_files, found.without_weights) == ((BadFile("config.json", "missing"),), True)


def test_pointers_and_missing_shards(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "gone.safetensors"}}
    made = folder(tmp_path, QWEN, model_safetensors=POINTER)
    (made / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    assert [(bad.name, bad.trouble) for bad in read_model(made, "--model").bad_files] == [
        ("model.safetensors", "pointer"),
        ("gone.safetensors", "missing"),
    ]


def test_missing_pickle_shards_count_without_safetensors(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "pytorch_model-1.bin", "b": "pytorch_model-2.bin"}}
    made = folder(tmp_path, QWEN)
    (made / "model.safetensors").unlink()
    (made / "pytorch_model.bin.index.json").write_text(json.dumps(index), "utf-8")
    (made / "pytorch_model-1.bin").write_bytes(bytes(10))
    (bad,) = read_model(made, "--model").bad_files
    assert (bad.name, bad.trouble) == ("pytorch_model-2.bin", "missing")
    (made / "model.safetensors").write_bytes(bytes(2000))
    assert read_model(made, "--model").bad_files == ()


def test_index_beside_a_file_of_all_weights_does_not_count(tmp_path: Path) -> None:
    made = folder(tmp_path, QWEN)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (made / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    assert read_model(made, "--model").bad_files == ()


def test_missing_shards_are_found_by_number_without_an_index(tmp_path: Path) -> None:
    made = folder(tmp_path, {})
    (made / "model-00001-of-00003.safetensors").write_bytes(bytes(2000))
    missed = [(file.name, file.trouble) for file in read_model(made, "--model").bad_files]
    assert missed == [(f"model-0000{number}-of-00003.safetensors", "missing") for number in (2, 3)]


def test_pipe_in_place_of_a_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    os.mkfifo(tmp_path / "a.safetensors")
    found = read_model(tmp_path, "--model")
    assert {(file.name, file.reason) for file in found.bad_files} == {
        ("config.json", "it is not a file"),
        ("a.safetensors", "it is not a file"),
    }


def launched(path: str) -> Launch:
    words = (Word(f"actor_rollout_ref.model.path={path}", "run.sh", 3),)
    return Launch((), command=Command("verl.trainer.main_ppo", words, "run.sh", 1))


def test_launch_command_names_the_model(tmp_path: Path) -> None:
    folder(tmp_path, QWEN)
    machine = Machine({"HOME": str(tmp_path.parent)}, tmp_path.parent)
    for path in (str(tmp_path), tmp_path.name, f"'~/{tmp_path.name}'", f"$HOME/{tmp_path.name}"):
        found = model.collect(machine, TARGET, launched(path), NOT_COMPOSED)
        assert isinstance(found, Model)
        assert (found.model_type, found.named_by) == ("qwen2", "actor_rollout_ref.model.path")


def test_hub_model_is_read_from_the_cache(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--Qwen--Qwen2.5-7B"
    snapshot = repository / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    folder(snapshot, QWEN)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc123\n")
    machine = Machine({"HF_HOME": str(tmp_path)}, tmp_path)
    found = model.collect(machine, TARGET, launched("Qwen/Qwen2.5-7B"), NOT_COMPOSED)
    assert isinstance(found, Model)
    assert (found.model_type, found.folder) == ("qwen2", str(snapshot))
    (repository / "refs" / "main").write_text("../../../..\n")
    assert isinstance(model.collect(machine, TARGET, launched("Qwen/Qwen2.5-7B"), NOT_COMPOSED), Absent)


def test_file_is_not_a_model_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert read_model(tmp_path / "config.json", "--model").bad_files == (BadFile("", "missing"),)


def test_missing_path_is_distinguished_from_a_hub_name(tmp_path: Path) -> None:
    machine = Machine({}, tmp_path)
    gone = model.collect(machine, TARGET, launched("/gone/qwen"), NOT_COMPOSED)
    assert isinstance(gone, Model)
    assert gone.bad_files == (BadFile("", "missing"),)
    assert isinstance(model.collect(machine, TARGET, launched("Qwen/Qwen2.5-7B"), NOT_COMPOSED), Absent)
    assert isinstance(model.collect(machine, TARGET, Absent("no launch script"), NOT_COMPOSED), Absent)


AUTO = """
CONFIG_MAPPING_NAMES = OrderedDict([("qwen2", "Qwen2Config"), ("qwen3", "Qwen3Config")])
CONFIG_MAPPING_NAMES.update({"odd": "OddConfig"})
OTHER = OrderedDict([("nonsense", "NonsenseModel")])
"""


@pytest.mark.parametrize(
    ("model_type", "known"), [("qwen3", True), ("odd", True), ("qwen4", False), ("nonsense", False)]
)
def test_transformers_is_queried_for_the_type(tmp_path: Path, model_type: str, known: bool) -> None:
    table = tmp_path / "transformers" / "models" / "auto" / "configuration_auto.py"
    table.parent.mkdir(parents=True)
    table.write_text(AUTO, "utf-8")
    target = replace(TARGET, libraries=(("transformers", tmp_path / "transformers"),))
    found = transformers_support.collect(
        Model("/m", "--model", model_type=model_type), target, Unknown(""), Unknown("")
    )
    assert isinstance(found, TransformersSupport)
    assert found.known is known
    if model_type == "qwen4":
        assert set(found.nearest) == {"qwen2", "qwen3"}


REGISTRY = """
_TEXT_GENERATION_MODELS = {"Qwen2ForCausalLM": ("qwen2", "Qwen2ForCausalLM")}
_TRANSFORMERS_BACKEND_MODELS = {"TransformersForCausalLM": ("transformers", "TransformersForCausalLM")}
_PREVIOUSLY_SUPPORTED_MODELS = {"MotifForCausalLM": "0.10.2"}
_OOT_SUPPORTED_MODELS = {"FarForCausalLM": "https://example.org"}
"""


@pytest.mark.parametrize(
    ("name", "known", "removed"),
    [("Qwen2ForCausalLM", True, ""), ("MotifForCausalLM", False, "0.10.2"), ("FarForCausalLM", False, "")],
)
def test_vllm_is_queried_for_the_architecture(tmp_path: Path, name: str, known: bool, removed: str) -> None:
    tree = vllm(tmp_path, {"model_executor/models/registry.py": REGISTRY})
    found = supported(tmp_path, tree, name)
    assert isinstance(found, VllmSupport)
    assert (found.known, found.removed_after) == (known, removed)


@pytest.mark.parametrize(
    ("name", "falls_back"),
    [
        ("FarForCausalLM", True),  # of a plugin
        ("OnlyHereForCausalLM", True),  # of transformers alone
        ("Qwen2ForSequenceClassification", True),  # vLLM makes it of the one that it has
        ("Qwen2ForCausal", False),
        ("", False),
    ],
)
def test_architecture_unknown_to_vllm_may_fall_back_to_transformers(
    tmp_path: Path, name: str, falls_back: bool
) -> None:
    tree = vllm(tmp_path, {"model_executor/models/registry.py": REGISTRY})
    module = tmp_path / "transformers" / "models" / "here" / "modeling_here.py"
    module.parent.mkdir(parents=True)
    module.write_text("class OnlyHereForCausalLM(PreTrainedModel):\n    pass\n")
    found = supported(tmp_path, tree, name)
    assert isinstance(found, VllmSupport)
    assert (found.known, found.falls_back) == (False, falls_back)
    assert not name.endswith("Causal") or found.nearest == "Qwen2ForCausalLM"


@pytest.mark.parametrize(
    ("package", "may_register"), [("my_models", True), ("vllm_ascend", True), ("vllm", False)]
)
def test_plugins_of_vllm_may_register_architectures(tmp_path: Path, package: str, may_register: bool) -> None:
    tree = vllm(tmp_path, {"model_executor/models/registry.py": REGISTRY})
    metadata = tmp_path / f"{package}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[vllm.general_plugins]\na = b:c\n")
    here = interpreter(tmp_path / "a" / "b", tmp_path)
    target = replace(TARGET, libraries=(("transformers", tmp_path / "transformers"),))
    found = vllm_support.collect(
        Model("/m", "--model", ("NewForCausalLM",)), VllmTree(tree), target, here, Unknown("")
    )
    assert isinstance(found, VllmSupport)
    assert found.falls_back is may_register


def supported(folder: Path, tree: Tree, name: str) -> VllmSupport | Unknown:
    target = replace(TARGET, libraries=(("transformers", folder / "transformers"),))
    return vllm_support.collect(
        Model("/m", "--model", (name,)), VllmTree(tree), target, Unknown(""), Unknown("")
    )


def test_unreadable_tables_are_unknown(tmp_path: Path) -> None:
    tree = vllm(tmp_path, {"model_executor/models/registry.py": "_MODELS = load()\n"})
    assert isinstance(supported(tmp_path, tree, "X"), Unknown)


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ('{"model": {}}\n', 0),
        ('{"version": "1.0", ', 1),
        ("", 1),
        ("{}", 1),
        ("[]", 1),
        ("<html> }", 1),
        (f'{{"model": {{}}, "x": "{"x" * 1_100_000}"}}', 0),
        (f'{{"model": {{}}, "x": "{"x" * 1_100_000}"', 1),
    ],
    ids=["sound", "cut off", "empty", "no model", "a list", "no JSON", "large", "large and cut off"],
)
def test_a_tokenizer_that_cannot_be_used_is_damaged(tmp_path: Path, text: str, bad: int) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text(text)
    found = read_model(tmp_path, "--model")
    assert [(file.name, file.trouble) for file in found.bad_files] == [("tokenizer.json", "damaged")] * bad


@pytest.mark.parametrize(
    ("name", "known"), [("bfloat16", True), ("bfloat61", False), ("torch.bfloat16", False)]
)
def test_dtype_must_be_defined_by_torch(name: str, known: bool, tmp_path: Path) -> None:
    stub = tmp_path / "torch" / "_C" / "__init__.pyi"
    stub.parent.mkdir(parents=True)
    stub.write_text("float32: dtype = ...\nbfloat16: dtype = ...\ndef bfloat61(): ...\n")
    found = number_type.collect(replace(read_model(tmp_path, "--model"), dtype=name), interpreter(tmp_path))
    assert isinstance(found, NumberType)
    assert (found.known, found.nearest[:1]) == (known, ("bfloat16",))


@pytest.mark.parametrize(("text", "broken"), [("{}", False), ("{", True), ("[]", True)])
def test_tokenizer_config_that_is_not_an_object_is_reported(text: str, broken: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "tokenizer_config.json").write_text(text)
    names = [file.name for file in read_model(tmp_path, "--model").bad_files]
    assert names == (["tokenizer_config.json"] if broken else [])
