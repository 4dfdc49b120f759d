"""Faults in the user's files, and correct content."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.toolkit.collectors.configuration import own_contents

LOOP = "+actor_rollout_ref.rollout.agent.default_agent_loop=mine"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- name: mine\n  _target_: loops.Loop\n", ""),
        ("- name: mine\n  _target_: elsewhere.Loop\n", ""),
        ("- name: other\n  _target_: loops.Gone\n", ""),
        ("- name: mine\n  _target_: loops.Gone\n", "has no Gone"),
        ("name: mine\n_target_: loops.Loop\n", "not a list of agent loops"),
        ("- _target_: loops.Loop\n", "without a name"),
        ("- ${oc.create:${entry}}\n", ""),
    ],
)
def test_agent_loops(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "loops.py").write_text("class Loop:\n    pass\n")
    (tmp_path / "agents.yaml").write_text(text)
    found = list(own_contents.agent_loops(configured(LOOP)[0], tmp_path / "agents.yaml", (tmp_path,)))
    assert [problem in words for words in found] == ([True] if problem else [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tools:\n  - class_name: mine.Tool\n    config: {type: native}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.Own\n    config: {type: native}\n", ""),
        ("tools:\n  - class_name: mine.Tool\n    config: {type: native}\n", "has no tool_schema for mine.Tool"),
        ("tools:\n  - class_name: mine.Gone\n    config: {type: native}\n", "has no Gone"),
        ("tools:\n  - class_name: mine.Own\n", "no config.type"),
        ("tools:\n  - config: {type: native}\n", "without class_name"),
        ("- class_name: mine.Own\n", "no list of tools"),
        ("tools:\n  - class_name: mine.Search\n    config: {type: native, url: x}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.Search\n    config: {type: native}\n    tool_schema: {type: function}\n", "no config.url, which its constructor reads"),
        ("tools:\n  - class_name: mine.Filled\n    config: {type: native}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.Created\n    config: {type: native}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.Inherits\n    config: {type: native}\n    tool_schema: {type: function}\n", ""),
        ("tools:\n  - class_name: mine.After\n    config: {type: native}\n    tool_schema: {type: function}\n", "no config.url, which its constructor reads"),
        ("tools: ${more}\n", ""),
        ("tools:\n  - ${more.0}\n", ""),
        ("tools:\n  - class_name: mine.Own\n    config: ${more}\n", ""),
    ],
)  # fmt: skip
def test_tools(tmp_path: Path, text: str, problem: str) -> None:
    classes = "class Tool(BaseTool):\n    pass\n\n\nclass Own(BaseTool):\n    def get_openai_tool_schema(self):\n        return SCHEMA\n"
    classes += "\n\nclass Search(BaseTool):\n    def __init__(self, config, tool_schema):\n        self.url = config['url']\n"
    classes += "\n\nclass Filled(BaseTool):\n    def __init__(self, config, tool_schema):\n        config.setdefault('url', '')\n        self.url = config['url']\n"
    classes += "\n\nclass Created(Search):\n    def __new__(cls, config, tool_schema):\n        config['url'] = ''\n        return super().__new__(cls)\n\n    def __init__(self, config, tool_schema):\n        self.url = config['url']\n"
    for name, base in (("Inherits", "Filled"), ("After", "BaseTool")):
        classes += f"\n\nclass {name}({base}):\n    def __init__(self, config, tool_schema):\n        super().__init__(config, tool_schema)\n        self.url = config['url']\n"
    (tmp_path / "mine.py").write_text(classes)
    (tmp_path / "tools.yaml").write_text(text)
    found = list(own_contents.tools(tmp_path / "tools.yaml", (tmp_path,)))
    assert [problem in words for words in found] == ([True] if problem else [])


def test_type_of_a_tool_that_verl_does_not_have(tmp_path: Path) -> None:
    registry = tmp_path / "verl/tools/tool_registry.py"
    registry.parent.mkdir(parents=True)
    registry.write_text('class ToolType(Enum):\n    NATIVE = "native"\n')
    file = tmp_path / "tools.yaml"
    file.write_text("tools:\n  - class_name: a.Tool\n    config: {type: mcp}\n")
    verl = tmp_path / "verl"
    assert list(own_contents.tools(file, (), verl)) == [
        "has a tool of type mcp, but this verl has only native"
    ]
    assert list(own_contents.tools(file, (), tmp_path / "elsewhere")) == []
    file.write_text("tools:\n  - class_name: a.Tool\n    config: {type: '${oc.env:TOOL_TYPE,native}'}\n")
    assert list(own_contents.tools(file, (), verl)) == []
    file.write_text("tools:\n  - class_name: a.Tool\n    config: {type: mcp}\n")
    registry.write_text('class ToolType(Enum):\n    NATIVE = "native"\n    MCP = "mcp"\n')
    assert list(own_contents.tools(file, (), verl)) == []


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ('@function_tool\ndef f(a: int):\n    """Add.\n\n    Args:\n        a: a number\n    """\n', ""),
        ("@function_tool(schema=S)\ndef f(a):\n    pass\n", ""),
        ("def f(a):\n    pass\n", ""),
        ("@function_tool\ndef f(a: int):\n    pass\n", "a tool f without a docstring"),
        (
            "@function_tool('x', schema=S)\ndef f(a): ...\n@function_tool('x', schema=S)\ndef g(a): ...\n",
            "two tools named x",
        ),
        (
            "@function_tool(schema=S)\ndef f(a): ...\n@function_tool(name='f', schema=S)\ndef g(a): ...\n",
            "two tools named f",
        ),
        ("@function_tool('x', schema=S)\ndef f(a): ...\n@function_tool(NAME, schema=S)\ndef g(a): ...\n", ""),
        ("@function_tool('x', schema=S)\ndef f(a): ...\n@function_tool('y', schema=S)\ndef f(a): ...\n", ""),
        ('@function_tool("x")\ndef f(a):\n    """Add."""\n', "parameter a has no type"),
        ('@function_tool\ndef f(a: int):\n    """Add."""\n', "does not describe a"),
    ],
)
def test_function_tools(code: str, problem: str) -> None:
    found = list(own_contents.function_tools(ast.parse(code)))
    assert [problem in words for words in found] == ([True] if problem else [])


CALLBACKS = """\
class CheckpointCallback:
    pass

def build_checkpoint_callback(config):
    return callback_cls(config=config)
"""
CALLS_BACK = """\
class Trainer:
    def _save_checkpoint(self):
        self.checkpoint_callback.on_save(trainer=self, global_step=1, checkpoint_dir="x", async_save=False)
"""


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("class Mine(CheckpointCallback):\n    def on_save(self, trainer, global_step): ...\n", "whose on_save does not accept checkpoint_dir"),
        ("class Mine(CheckpointCallback):\n    def __init__(self): ...\n", "whose __init__ does not accept config"),
        ("class Mine(CheckpointCallback):\n    def on_save(self, bucket, **kwargs): ...\n", "whose on_save requires bucket"),
        ("class Mine(CheckpointCallback):\n    def on_save(self, trainer, global_step, checkpoint_dir, async_save=False, **kwargs): ...\n", ""),
        ("class Mine(CheckpointCallback):\n    def on_save(self, **kwargs): ...\n    def push(self, name): ...\n", ""),
        ("class Mine(CheckpointCallback):\n    @quiet\n    def on_save(self): ...\n", ""),
        ("class Mine(Other):\n    def on_save(self): ...\n", ""),
    ],
)  # fmt: skip
def test_checkpoint_callback(tmp_path: Path, code: str, problem: str) -> None:
    verl = tmp_path / "verl/trainer/ppo"
    (verl / "v1").mkdir(parents=True)
    (verl / "checkpoint_callback.py").write_text(CALLBACKS)
    (verl / "v1/trainer_base.py").write_text(CALLS_BACK)
    (tmp_path / "upload.py").write_text(code)
    found = list(own_contents.checkpoint_callback("upload.Mine", tmp_path / "verl", (tmp_path,)))
    assert [(path.name, problem in words) for path, words in found] == (
        [("upload.py", True)] if problem else []
    )
