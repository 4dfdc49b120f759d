"""Variable values that vLLM or Ray cannot parse, from a small vLLM tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.miniatures import source_trees

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import Tree, VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.collectors.variables.unreadable_values import UnreadableValues, unreadable_values
from verl_doctor.toolkit.facts import Absent
from verl_doctor.toolkit.machine import Machine

ENVS = """
def env_with_choices(name, default, choices):
    def read():
        value = os.getenv(name)
        if value is None:
            return default
        actual = choices() if callable(choices) else choices
        if value not in actual:
            raise ValueError(f"Invalid value {value!r} for {name}")
        return value
    return read

environment_variables = {
    "VLLM_SECONDS": lambda: int(os.getenv("VLLM_SECONDS", "600")),
    "VLLM_FLAG": lambda: bool(int(os.environ.get("VLLM_FLAG", "0"))),
    "VLLM_SHARE": lambda: float(os.getenv("VLLM_SHARE", "0.5")),
    "VLLM_WORD": lambda: os.getenv("VLLM_WORD", "x").lower() in ("true", "1"),
    "VLLM_METHOD": env_with_choices("VLLM_METHOD", "fork", ["fork", "spawn"]),
    "VLLM_CPU_SPACE": lambda: int(os.getenv("VLLM_CPU_SPACE", "0")) if "VLLM_CPU_SPACE" in os.environ else None,
    "VLLM_SPACE": lambda: int(os.getenv("VLLM_SPACE", "0")) if "VLLM_SPACE" in os.environ else None,
    "VLLM_LATE": env_with_choices("VLLM_LATE", None, lambda: known()),
}
"""


NO_SCRIPT = Absent("no script")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("VLLM_SECONDS", "30", ""),
        ("VLLM_SECONDS", "10min", "ValueError: invalid literal for int() with base 10: '10min'"),
        ("VLLM_FLAG", "1", ""),
        ("VLLM_FLAG", "true", "ValueError: invalid literal for int()"),
        ("VLLM_SHARE", "50%", "ValueError: could not convert string to float: '50%'"),
        ("VLLM_WORD", "anything", ""),
        ("VLLM_METHOD", "spawn", ""),
        ("VLLM_METHOD", "thread", "ValueError: Invalid value"),
        ("VLLM_LATE", "thread", ""),
        ("VLLM_SPACE", "4GB", "ValueError: invalid literal for int() with base 10: '4GB'"),
        ("VLLM_SPACE", "4", ""),
        ("VLLM_CPU_SPACE", "4GB", ""),  # read by the engine for processors only
        ("VLLM_UNKNOWN", "true", ""),
        ("RAY_memory_usage_threshold", "0.95", ""),
        ("RAY_memory_usage_threshold", "95%", "Cannot parse"),
        ("RAY_enable_something", "yes", ""),
        ("RAY_ADDRESS", "auto", ""),
        ("PYTHONHASHSEED", "4294967295", ""),
        ("PYTHONHASHSEED", "fixed", "must be"),
        ("PYTHONMALLOC", "pymalloc_debug", ""),
        ("PYTHONMALLOC", "jemalloc", "unknown"),
        ("PYTHONHOME", "/gone/python", "No module named 'encodings'"),
        ("TORCH_DISTRIBUTED_DEBUG", "detail", ""),
        ("TORCH_DISTRIBUTED_DEBUG", "full", "must be OFF, INFO, or DETAIL"),
        ("VERL_LOGGING_LEVEL", "DEBUG", ""),
        ("VERL_LOGGING_LEVEL", "debug", "Unknown level: 'debug'"),
        ("VERL_RARE_LEVEL", "debug", ""),
    ],
)
def test_invalid_values_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    vllm = VllmTree(source_trees.vllm(tmp_path, {"envs.py": ENVS}))
    verl = tmp_path / "verl"
    verl.mkdir()
    for place in range(5):
        (verl / f"m{place}.py").write_text('logger.setLevel(os.getenv("VERL_LOGGING_LEVEL", "WARN"))\n')
    (verl / "rare.py").write_text('logger.setLevel(os.getenv("VERL_RARE_LEVEL", "WARN"))\n')
    trees = VerlTrees(Tree(str(verl), "verl", "0.9.1", "--verl"), "verl")
    machine = Machine(cwd=tmp_path)
    found = unreadable_values.collect(
        JobVariables({name: value}), trees, vllm, Absent("no interpreter"), machine, NO_SCRIPT
    )
    assert isinstance(found, UnreadableValues)
    assert [(value.name, text in value.text) for value in found.values] == ([(name, True)] if text else [])
    if not name.startswith("VLLM_") and name != "PYTHONHOME":  # vLLM's own error states what it accepts
        assert all(value.accepted for value in found.values)


@pytest.mark.parametrize(
    ("version", "names"),
    [("0.12.0", ["VLLM_METHOD"]), ("0.12.0+cpu", ["VLLM_CPU_SPACE"])],
)
def test_engine_for_processors_sets_some_itself_and_reads_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, names: list[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    platform = 'def update(config):\n    os.environ["VLLM_METHOD"] = "spawn"\n'
    tree = source_trees.vllm(tmp_path, {"envs.py": ENVS, "platforms/cpu.py": platform}, version)
    found = unreadable_values.collect(
        JobVariables({"VLLM_METHOD": "forkserver", "VLLM_CPU_SPACE": "4GB"}),
        Absent("no verl"),
        VllmTree(tree),
        Absent("no interpreter"),
        Machine(cwd=tmp_path),
        NO_SCRIPT,
    )
    assert isinstance(found, UnreadableValues)
    assert [value.name for value in found.values] == names


@pytest.mark.parametrize(
    ("value", "is_refused"),
    [
        ("+dynamo, graph_breaks", False),
        ("all", False),
        ("ours", False),
        ("installed,-dynamo", False),
        ("json.decoder", False),
        ("dynamo,nonsense", True),
        ("+help", True),
    ],
)
def test_loggers_of_torch_are_names_that_it_registers_or_modules(
    tmp_path: Path, value: str, *, is_refused: bool
) -> None:
    site, job = tmp_path / "site", tmp_path / "job"
    table = site / "torch/_logging/_registrations.py"
    table.parent.mkdir(parents=True)
    table.write_text('register_log("dynamo", [])\nregister_artifact(\n    "graph_breaks",\n)\n')
    (site / "installed").mkdir()
    job.mkdir()
    (job / "ours.py").touch()
    interpreter = Interpreter("/env/bin/python", "3.11.7", "cpython", "cpython-311", "/env", "/env", (str(site),), (str(site),), "Linux", "x86_64", "2.36", "", "")  # fmt: skip
    machine = Machine(cwd=job)
    found = unreadable_values.collect(
        JobVariables({"TORCH_LOGS": value}),
        Absent("no verl"),
        Absent("no vLLM"),
        interpreter,
        machine,
        NO_SCRIPT,
    )
    assert isinstance(found, UnreadableValues)
    assert [refused.text for refused in found.values] == [
        f"ValueError: Invalid log settings: {value}"
    ] * is_refused


@pytest.mark.parametrize(
    ("module", "is_refused"), [("verl.trainer.tune", True), ("verl.trainer.other", False), ("tune", False)]
)
def test_level_that_the_program_itself_reads(tmp_path: Path, module: str, *, is_refused: bool) -> None:
    program = tmp_path / "verl/trainer/tune.py"
    program.parent.mkdir(parents=True)
    program.write_text('logger.setLevel(os.getenv("VERL_TUNE_LEVEL", "WARN"))\n')
    trees = VerlTrees(Tree(str(tmp_path / "verl"), "verl", "0.9.1", "--verl"), "verl")
    launch = Launch((), command=Command(module, (), "run.sh", 2))
    none = Absent("not installed")
    variables = JobVariables({"VERL_TUNE_LEVEL": "info"})
    found = unreadable_values.collect(variables, trees, none, none, Machine(cwd=tmp_path), launch)
    assert isinstance(found, UnreadableValues)
    assert bool(found.values) == is_refused
