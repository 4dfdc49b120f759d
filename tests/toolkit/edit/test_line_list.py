"""Entries are added to lists in YAML as a person would, and whatever cannot be is refused."""

from __future__ import annotations

import pytest
import yaml

from verl_doctor.toolkit.edit.line_list import extended
from verl_doctor.toolkit.sources.python.edit import CannotEdit

MARK = "# verl-doctor: RAY130"
BRACKETS = 'working_dir: ./\nexcludes: ["/.git/"]  # ours\nenv_vars:\n  A: "1"\n'
LINES = "excludes:\n- /.git/\n# models\n- '*.pt'\nworking_dir: ./\n"


def add(text: str, *entries: str) -> str:
    return extended(text.encode(), "env.yaml", "excludes", entries or ("/checkpoints/",), MARK).decode()


def test_bracketed_list_keeps_its_old_line_as_a_comment() -> None:
    after = add(BRACKETS)
    assert '\n# excludes: ["/.git/"]  # ours  # verl-doctor: RAY130\n' in after
    assert '\nexcludes: ["/.git/", "/checkpoints/"]  # ours  # verl-doctor: RAY130\n' in after
    assert after.endswith('env_vars:\n  A: "1"\n')


def test_block_list_is_extended() -> None:
    after = add(LINES, "/checkpoints/", "/a b/x.bin")
    assert yaml.safe_load(after)["excludes"] == ["/.git/", "*.pt", "/checkpoints/", "/a b/x.bin"]
    assert [line for line in after.splitlines() if line not in LINES.splitlines()] == [
        f'- "/checkpoints/"  {MARK}',
        f'- "/a b/x.bin"  {MARK}',
    ]


@pytest.mark.parametrize(
    "text",
    ["working_dir: ./", "working_dir: ./\r\n", "excludes: []\n", "excludes: [a,]\n", "excludes:\n    - a"],
)  # fmt: skip
def test_other_notations_are_extended(text: str) -> None:
    old = yaml.safe_load(text)
    assert yaml.safe_load(add(text)) == {**old, "excludes": [*old.get("excludes", []), "/checkpoints/"]}
    assert ("\r\n" in text) == ("\r\n" in add(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("excludes: [a,\n  b]\n", "env.yaml:1: the list spans several lines"),
        ("excludes: a\n", "is not a list"),
        ("- a\n", "one name per line"),
        ("{}\n", "one name per line"),
        ("a: [\n", "not valid YAML"),
        ("a: &x [1]\nexcludes: *x\n", "cannot be extended"),
        ("working_dir: |\n  text\n...\n", "cannot be extended"),
    ],
)
def test_ambiguous_list_is_refused(text: str, why: str) -> None:
    with pytest.raises(CannotEdit, match=why):
        add(text)
