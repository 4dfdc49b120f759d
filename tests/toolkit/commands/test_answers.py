"""Answers of commands: one Protocol, and one function that shows them."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest
from support.answers import ANSWERS, REPORT

from verl_doctor.toolkit import commands
from verl_doctor.toolkit.cli.main import cli
from verl_doctor.toolkit.commands.sites.answer import SitesAnswer
from verl_doctor.toolkit.console.answer import Answer
from verl_doctor.toolkit.console.formats import FORMATS
from verl_doctor.toolkit.console.view import show, write
from verl_doctor.toolkit.render.render import ReportAnswer

FOLDER = Path(next(iter(commands.__path__)))
LISTING = "explain"
"""The table of the documentation: a list, which is no answer about anything that was examined."""


def leaves(group: click.Group, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands below a group, each with the first word of its name."""
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        if isinstance(command, click.Group):
            yield from leaves(command, name or word)
        elif command is not None:
            yield name or word, command


def with_forms() -> set[str]:
    """The commands that have --format."""
    return {
        name
        for name, command in leaves(cli)
        if any("--format" in parameter.opts for parameter in command.params)
    }


def classes_of(package: str) -> list[type[Any]]:
    """Answer classes of a command's package."""
    found = []
    for path in sorted((FOLDER / package).rglob("*.py")):
        if re.search(r"class \w+\(\w*Answer\):", path.read_text("utf-8")):
            parts = path.relative_to(FOLDER).with_suffix("").parts
            module = importlib.import_module(".".join((commands.__name__, *parts)))
            members = vars(module).values()
            found += [
                member
                for member in members
                if inspect.isclass(member)
                and member.__module__ == module.__name__
                and issubclass(member, Answer)
            ]
    return found


def test_every_command_with_formats_returns_an_answer() -> None:
    """`fix` answers with the report that `check` answers with."""
    named = {name.partition(" ")[0] for name in ANSWERS}
    assert with_forms() - {LISTING} == named | {"fix"}
    classes = {name: classes_of(name) for name in named - {"check"}}
    assert [name for name, found in classes.items() if not found] == []
    assert [cls for found in classes.values() for cls in found if inspect.isabstract(cls)] == []


@pytest.mark.parametrize("name", ANSWERS)
def test_every_answer_supports_every_format(name: str, tmp_path: Path) -> None:
    answer, code = ANSWERS[name]
    assert isinstance(answer, Answer)
    for form in ("text", "json", "markdown", *answer.other_forms()):
        file = tmp_path / form
        assert show(answer, form, file) == code
        written = StringIO()
        write(answer, form, written)
        assert file.read_text("utf-8") == written.getvalue()
    assert json.loads((tmp_path / "json").read_text("utf-8")) == json.loads(json.dumps(answer.document()))


def test_report_formats_equal_the_available_choices() -> None:
    assert {"text", "json", "markdown", *ReportAnswer(REPORT).other_forms()} == set(FORMATS)


def test_answer_without_a_page_is_a_code_block() -> None:
    answer = SitesAnswer(Path("a.toml"), {"MODEL": "/m"}, (), "-a\n+b\n", to_do=False, applied=False)
    assert list(answer.markdown_lines()) == ["```", "-a", "+b", "```"]


def test_plain_lines_keep_tabs() -> None:
    answer = SitesAnswer(Path("a.toml"), {"MODEL": "/m"}, (), "+\tb\n", to_do=False, applied=False)
    written = StringIO()
    write(answer, "text", written)
    assert written.getvalue() == "+\tb\n"


def test_answers_are_printed_only_by_show() -> None:
    """A command that dumps its document itself has its own idea of a full disk and of a closed pipe."""
    dumping = [
        str(path.relative_to(FOLDER))
        for path in FOLDER.glob("*/command.py")
        if "json.dumps" in path.read_text("utf-8") and path.parent.name != "explain"
    ]
    assert dumping == []
