"""Uses of a variable in a source."""

from __future__ import annotations

import ast

import pytest

from verl_doctor.toolkit.sources.python.environment import Mention, mentions


def found(source: str, *names: str) -> list[tuple[str, str]]:
    return [
        (mention.use, mention.entry) for mention in mentions(ast.parse(source), frozenset(names or ("X_Y",)))
    ]


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['X_Y']",
        "os.environ.get('X_Y', '0')",
        "os.getenv('X_Y')",
        "getenv(key='X_Y')",
        "'X_Y' in os.environ",
        "'X_Y' not in environ",
        "env_bool('X_Y', False)",
        "self._set_from_env_if_set('backend', 'X_Y')",
        "envs.X_Y",
        "vllm.envs.X_Y",
        "envs.is_set('X_Y')",
        "getattr(envs, 'X_Y')",
        "from vllm.envs import X_Y",
        "class Envs:\n    X_Y = EnvBool(False)",
        "def f(a=os.environ.get('X_Y')): ...",
    ],
)
def test_reads_of_variables_are_found(source: str) -> None:
    assert found(source) == [("reads", "")]


@pytest.mark.parametrize(
    "source",
    [
        "os.environ['X_Y'] = '1'",
        "del os.environ['X_Y']",
        "os.environ.setdefault('X_Y', '1')",
        "os.environ.pop('X_Y', None)",
        "os.putenv('X_Y', '1')",
        "monkeypatch.setenv('X_Y', '1')",
        "set_env_var('X_Y', '1')",
        "{'env_vars': {'X_Y': '1'}}",
        "envs.X_Y = 1",
    ],
)
def test_writes_of_variables_are_found(source: str) -> None:
    assert found(source) == [("sets", "")]


@pytest.mark.parametrize(
    "source",
    [
        "NAME = 'X_Y'",
        "KNOWN = ['X_Y']",
        "copied = {'X_Y', 'Z'}",
        "read('X_Y')",
        "getattr(config, 'X_Y')",
        "'X_Y' in names",
        "{'X_Y': lambda: 1}",
    ],
)
def test_mentions_of_variables_are_found(source: str) -> None:
    assert found(source) == [("names", "")]


@pytest.mark.parametrize(
    "source", ["'X_Y'", '"""set X_Y=1"""', "log('set X_Y=1')", "# X_Y", "X_Y = 1", "config.X_Y", "f'X_Y{a}'"]
)
def test_other_code_is_not_reported(source: str) -> None:
    assert found(source) == []


TABLE = """
environment_variables: dict = {
    "X_Y": lambda: int(os.getenv("X_Y", "1")),
    "NEW": lambda: os.environ.get("OLD") or os.environ.get("NEW"),
    "CHOICE": env_with_choices("CHOICE", "a", ["X_Y"]),
}
"""


def test_entry_of_a_table_has_its_reader() -> None:
    assert list(mentions(ast.parse(TABLE), frozenset({"OLD"}))) == [Mention("OLD", 4, "tables", "NEW")]


def test_entry_with_its_own_name_is_found() -> None:
    assert ("tables", "X_Y") in found(TABLE)
    assert not [use for use, _ in found(TABLE) if use == "reads"]
