"""Engine arguments of vLLM, read from the sources of two small trees."""

from __future__ import annotations

from pathlib import Path

from support.miniatures import source_trees

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration, with_overrides
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.collectors.vllm.engine_arguments import EngineArguments, engine_arguments
from verl_doctor.toolkit.facts import Absent, Unknown

ARGUMENTS = """
    class EngineArgs:
        model: str = ""
        max_model_len: int = 0
        def add(parser):
            parser.add_argument("--swap-space")
    class Other:
        nothing: int = 0
    """
LLM = "class LLM:\n    def __init__(self, model, *, tokenizer_mode=None): ...\n"
ROLLOUT = "engine_kwargs.pop('mine', None)\n"


def look(folder: Path, *words: str, arguments: str = ARGUMENTS) -> EngineArguments | Unknown:
    files = {"engine/arg_utils.py": arguments, "entrypoints/llm.py": LLM}
    vllm = source_trees.vllm(folder, files)
    verl = source_trees.verl(folder, "", **{"workers/rollout/vllm_rollout/rollout": ROLLOUT})
    tree = {"actor_rollout_ref": {"rollout": {"engine_kwargs": {"vllm": {}}}}}
    parsed = [Word(word, "run.sh", 1) for word in words]
    configuration = with_overrides(Configuration("main.py", "config", "ppo", before=tree), parsed)
    found = engine_arguments.collect(configuration, VllmTree(vllm), VerlTrees(verl, ""))
    assert isinstance(found, (EngineArguments, Unknown))
    return found


def test_fields_options_and_parameters_are_read(tmp_path: Path) -> None:
    found = look(tmp_path, "+actor_rollout_ref.rollout.engine_kwargs.vllm.seed=1")
    assert isinstance(found, EngineArguments)
    assert found.names == ("max_model_len", "model", "swap_space", "tokenizer_mode")
    assert found.by_verl == ("mine",)


def test_job_without_engine_arguments_is_absent(tmp_path: Path) -> None:
    assert isinstance(look(tmp_path, "trainer.nnodes=1"), Absent)


def test_unparsable_sources_are_unknown(tmp_path: Path) -> None:
    found = look(tmp_path, "+actor_rollout_ref.rollout.engine_kwargs.vllm.seed=1", arguments="class (")
    assert isinstance(found, Unknown)
    assert "EngineArgs" in found.reason
