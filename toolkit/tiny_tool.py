"""The tool that the talks of tiny data call, in the way in which a verl tree takes tools."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SETTINGS = "actor_rollout_ref.rollout.multi_turn"
_FUNCTION = '''\
"""The tool of the tiny talks."""

from verl.tools.function_tool import function_tool


@function_tool
def add(left: int, right: int) -> str:
    """Adds two numbers.

    Args:
        left: A number.
        right: A number.
    """
    return str(left + right)
'''


@dataclass(frozen=True)
class Tool:
    """One tool. `schema` describes it to a model, as OpenAI's interface has it.

    `called` gives the arguments of a call for two numbers, and what it answers. `file` is the name of the file through which verl
    takes it, empty when verl takes none, `content` what is in it, and `setting` the key in verl's configuration that names it.
    """

    schema: dict[str, Any]
    called: Callable[[int, int], tuple[dict[str, Any], str]]
    file: str = ""
    content: str = ""
    setting: str = ""

    @property
    def name(self) -> str:
        """Under which a model calls it."""
        return str(self.schema["function"]["name"])


def tool_of(verl: Path) -> Tool:
    """The one that the tree can use: a function in a file since verl 0.8, before that one of verl's own."""
    if os.path.isfile(verl / "tools/function_tool.py"):
        return Tool(_ADD, _add, "tools.py", _FUNCTION, f"{_SETTINGS}.function_tool_path")
    if os.path.isfile(verl / "tools/gsm8k_tool.py"):
        entry = {
            "class_name": "verl.tools.gsm8k_tool.Gsm8kTool",
            "config": {"type": "native"},
            "tool_schema": _REWARD,
        }
        content = json.dumps({"tools": [entry]}, indent=2) + "\n"  # which is YAML, too
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
"""For a tree that takes no tools: talks may call one all the same."""
