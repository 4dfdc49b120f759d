"""Options of a command's parser, read from its sources; the truth is argparse itself."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from textwrap import dedent

import pytest
from support.miniatures.source_trees import write

from verl_doctor.toolkit.sources.python.options import ParserOptions, parser_options
from verl_doctor.toolkit.sources.python.source import SourceTree

COMMAND = {
    "cli/serve.py": """
        from app.args import make_parser
        from app.others import unrelated
        def subparser_init(subparsers):
            made = subparsers.add_parser("serve")
            made.add_argument("model_tag", nargs="?")
            return make_parser(made)
    """,
    "args.py": """
        import argparse
        from dataclasses import dataclass, fields
        from app.engine import add_cli_args
        @dataclass
        class Base:
            host_name: str = ""
        @dataclass
        class Front(Base):
            port: int = 1
        def make_parser(parser):
            for key in [field.name for field in fields(Front)]:
                extra = []
                parser.add_argument(*extra, f"--{key.replace('_', '-')}")
            for name, kind in [("--old_style", str)]:
                parser.add_argument(name, type=kind)
            return add_cli_args(parser)
    """,
    "engine.py": """
        import argparse
        def add_cli_args(parser):
            parser.add_argument("--max-model-len", "-m", type=int)
            parser.add_argument("--stats", action=argparse.BooleanOptionalAction)
            return parser
    """,
    "others.py": """
        unrelated = 1
        def other(parser):
            if parser: parser.unrelated_option("--no-part-of-it")
    """,
}


@pytest.fixture
def options(tmp_path) -> ParserOptions:
    found = parser_options(SourceTree(write(tmp_path / "app", COMMAND), "app"), "app.cli.serve")
    assert found is not None
    return found


def test_option_names_are_those_of_argparse(options, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "app"]:
        monkeypatch.delitem(sys.modules, name)
    from app.args import make_parser

    parser = ArgumentParser()
    make_parser(parser)
    real = {text.replace("_", "-") for text in parser._option_string_actions if text.startswith("--")}
    assert options.names == real - {"--no-stats"}
    assert options.complete
    assert options.path.endswith("args.py")


@pytest.mark.parametrize("given", ["--max-model-len", "--max_model_len", "--max-mod", "--no-stats", "--help"])
def test_options_accepted_by_argparse_are_accepted(options, given):
    assert options.takes(given)


@pytest.mark.parametrize("given", ["--gone", "--no-gone", "--max-model-length", "--part-of-it"])
def test_options_rejected_by_argparse_are_rejected(options, given):
    assert not options.takes(given)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(parser):\n    parser.add_argument('--' + made())", False),
        ("class P:\n    def add_argument(self, *a):\n        super().add_argument(*a)", True),
    ],
)
def test_computed_options_leave_the_list_incomplete(tmp_path, text, expected):
    tree = SourceTree(write(tmp_path / "app", {"cli.py": dedent(text)}), "app")
    found = parser_options(tree, "app.cli")
    assert found is not None
    assert found.complete is expected


@pytest.mark.parametrize("files", [{"a.py": ""}, {"cli.py": "def"}])
def test_missing_or_broken_command_gives_no_options(tmp_path, files):
    assert parser_options(SourceTree(write(tmp_path / "app", files), "app"), "app.cli") is None
