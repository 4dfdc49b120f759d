"""The launch script in the examples of the ENV1xx rules."""

from __future__ import annotations

from typing import Any

from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import Tree, VllmTree
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.variables.variable_readers import Reading, VariableReaders
from verl_doctor.toolkit.facts import Absent

SCRIPT = "/home/me/run_grpo.sh"


def setting(
    reading: Reading, value: str = "1", *, vllm: str = "0.15.1", warns: bool = False
) -> tuple[Any, ...]:
    """A launch script whose third line exports one variable."""
    launch = Launch(
        ((SCRIPT, "shell script"),), settings=(Setting(name=reading.name, value=value, path=SCRIPT, line=3),)
    )
    return _facts(reading, Variables(), launch, vllm, warns=warns)


def in_shell(reading: Reading, value: str = "1", *, vllm: str = "0.15.1") -> tuple[Any, ...]:
    """No launch script, and one variable in the shell."""
    return _facts(reading, Variables({reading.name: value}), (Launch, Absent("none was named")), vllm)


def _facts(
    reading: Reading, variables: Variables, launch: Any, version: str, *, warns: bool = False
) -> tuple[Any, ...]:
    tree = Tree(folder="/env/vllm", module="vllm", version=version, found_in="site-packages")
    return (
        VariableReaders(variables=(reading,), folders={"vllm": "/env/vllm"}, vllm_warns=warns),
        variables,
        launch,
        VllmTree(tree),
        Packages(()),
    )
