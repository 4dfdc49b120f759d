"""The columns that a verl tree reads from its data files, derived from its sources."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.sources.python.source import parse_file, read, walk
from verl_doctor.toolkit.system.own_files import DATA

_SETTINGS = "actor_rollout_ref.rollout.multi_turn"
_FUNCTION = DATA / "tiny_tool.txt"
"""The source of the tool for the tiny conversations, which verl imports, but the doctor never does."""


@dataclass(frozen=True)
class Tool:
    """One tool. `schema` describes it to a model, in the format of OpenAI's interface.

    `called` returns the arguments and the result of a call for two numbers. `file` is the name of the file
    from which verl loads the tool, empty if there is none, `content` is the file's content, and `setting` is
    the key in verl's configuration that names it.
    """

    schema: dict[str, Any]
    called: Callable[[int, int], tuple[dict[str, Any], str]]
    file: str = ""
    content: str = ""
    setting: str = ""

    @property
    def name(self) -> str:
        """The name under which a model calls it."""
        return str(self.schema["function"]["name"])


def tool_of(verl: Path) -> Tool:
    """Return the tool that the tree can use.

    It is a function in a file since verl 0.8, before that one of verl's own tools.
    """
    if os.path.isfile(verl / "tools/function_tool.py"):
        return Tool(_ADD, _add, "tools.py", _FUNCTION.read_text("utf-8"), f"{_SETTINGS}.function_tool_path")
    if os.path.isfile(verl / "tools/gsm8k_tool.py"):
        entry = {
            "class_name": "verl.tools.gsm8k_tool.Gsm8kTool",
            "config": {"type": "native"},
            "tool_schema": _REWARD,
        }
        content = json.dumps({"tools": [entry]}, indent=2) + "\n"  # JSON, which is also valid YAML
        return Tool(_REWARD, _reward, "tools.yaml", content, f"{_SETTINGS}.tool_config_path")
    return NO_FILE


def _schema(name: str, does: str, **parameters: dict[str, str]) -> dict[str, Any]:
    wanted = {"type": "object", "properties": parameters, "required": [*parameters]}
    return {"type": "function", "function": {"name": name, "description": does, "parameters": wanted}}


def _add(left: int, right: int) -> tuple[dict[str, Any], str]:
    return {"left": left, "right": right}, str(left + right)


def _reward(left: int, right: int) -> tuple[dict[str, Any], str]:
    return {"answer": str(left + right)}, "reward=1.0"


_NUMBER = {"type": "integer", "description": "A number."}
_ADD = _schema("add", "Adds two numbers.", left=_NUMBER, right=_NUMBER)
_REWARD = _schema(
    "calc_gsm8k_reward",
    "Tells the reward of an answer.",
    answer={"type": "string", "description": "The answer to the question."},
)
NO_FILE = Tool(_ADD, _add)
"""For a tree without tools; conversations may call it anyway."""


_REWARDED = "utils/dataset/rl_dataset.py"
_SUPERVISED = ("utils/dataset/multiturn_sft_dataset.py", "utils/dataset/sft_dataset.py")
_INFO = "extra_info"
_SCORES = ("utils/reward_score/__init__.py", "trainer/main_ppo.py")  # the second up to verl 0.2
_AGENTS = "experimental/agent_loop"
_AGENT = "tool_agent"


@dataclass(frozen=True)
class Columns:
    """Names of columns by content: `rewarded["prompt_key"]` is the column of prompts in a job with rewards.

    `supervised` are those for fine-tuning, empty if the tree has no data set for it. `info` are the entries
    read from the column extra_info. `source` is a value of the column data_source for which the tree has a
    reward function. `agent` is the name of the agent that calls tools, for the column agent_name; empty if
    the tree has none. `tool` is a tool that it can call.
    """

    rewarded: dict[str, str]
    source: str
    supervised: dict[str, str] = field(default_factory=dict)
    info: tuple[str, ...] = ()
    agent: str = ""
    tool: Tool = NO_FILE

    @property
    def prompt(self) -> str:
        """The column of prompts."""
        return self.rewarded.get("prompt_key", "prompt")

    @property
    def pictures(self) -> str:
        """The column of pictures, both for rewards and for fine-tuning."""
        return self.rewarded.get("image_key", "images")


def columns(verl: Path) -> Columns | Unknown:
    """Read the data sets of the package folder `verl`."""
    if not os.path.isfile(verl / _REWARDED):
        return Unknown(
            f"{verl} is not a verl tree that reads data: {_REWARDED} is missing; name another with --verl"
        )
    rewarded = _module(verl / _REWARDED)
    if isinstance(rewarded, Unknown):
        return rewarded
    supervised: dict[str, str] = {}
    for name in _SUPERVISED:
        tree = _module(verl / name)
        if isinstance(tree, ast.Module):
            supervised |= {key: value for key, value in _defaults(tree) if key not in supervised}
    return Columns(
        rewarded=dict(_defaults(rewarded)),
        source=_source(verl),
        supervised=supervised,
        info=tuple(dict.fromkeys(_entries(rewarded))),
        agent=_AGENT if _has_agent(verl) else "",
        tool=tool_of(verl),
    )


def _source(verl: Path) -> str:
    """Return the first name that the tree compares with a data source to choose a reward function."""
    for name in _SCORES:
        tree = _module(verl / name)
        for node in walk(tree) if isinstance(tree, ast.Module) else ():
            match node:
                case ast.Compare(
                    left=ast.Name(id="data_source"),
                    comparators=[
                        ast.Constant(value=str(source))
                        | ast.List(elts=[ast.Constant(value=str(source)), *_])
                        | ast.Tuple(elts=[ast.Constant(value=str(source)), *_])
                        | ast.Set(elts=[ast.Constant(value=str(source)), *_])
                    ],
                ):
                    return source
    return ""


def _has_agent(verl: Path) -> bool:
    """Return whether an agent registers itself under the name."""
    for path in sorted((verl / _AGENTS).glob("*.py")):
        content = read(path)
        if isinstance(content, bytes) and f'@register("{_AGENT}")'.encode() in content:
            return True
    return False


def _module(path: Path) -> ast.Module | Unknown:
    tree = parse_file(path)
    return tree if isinstance(tree, ast.Module) else Unknown(tree.reason)


def _defaults(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the pairs of `config.get("prompt_key", "prompt")` and of parameters, `prompt_key="prompt"`."""
    for node in walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(key)), default]):
                pairs: list[tuple[str, ast.expr | None]] = [(key, default)]
            case ast.arguments():
                pairs = _with_defaults(node)
            case _:
                continue
        for name, value in pairs:
            if name.endswith("_key") and isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield name, value.value


def _with_defaults(node: ast.arguments) -> list[tuple[str, ast.expr | None]]:
    """Return the parameters with defaults; those of keyword-only parameters may be None."""
    every = [*node.posonlyargs, *node.args]
    named = [argument.arg for argument in every[len(every) - len(node.defaults) :]]
    return [
        *zip(named, node.defaults, strict=True),
        *zip((argument.arg for argument in node.kwonlyargs), node.kw_defaults, strict=True),
    ]


def _entries(tree: ast.Module) -> Iterator[str]:
    """Yield the names in `row.get("extra_info", {}).get(NAME)`."""
    for node in walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    attr="get",
                    value=ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(owner)), *_]),
                ),
                args=[ast.Constant(value=str(name)), *_],
            ) if owner == _INFO:
                yield name
