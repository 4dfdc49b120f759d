"""Paths are written into a configuration in which every other byte stays."""

from __future__ import annotations

import pytest

from verl_doctor.toolkit.commands.sites.edit import CannotWriteError, with_sites
from verl_doctor.toolkit.system import toml


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[sites]\nmodel = "/m"\ndata = "/d"\n'),
        ("marker = 'x'", "marker = 'x'\n\n[sites]\nmodel = \"/m\"\ndata = \"/d\"\n"),
        ('[sites]\nmodel = "/old"  # ours\n', '[sites]\nmodel = "/m"  # ours\ndata = "/d"\n'),
        ("[sites]\n\n[ignore]\n", '[sites]\nmodel = "/m"\ndata = "/d"\n\n[ignore]\n'),
        (
            '[ sites ]\r\nmodel = { writes = true, path = "/old" }\r\n',
            '[ sites ]\r\nmodel = { writes = true, path = "/m" }\r\ndata = "/d"\r\n',
        ),
        ("[sites]\n'other' = '/o'", "[sites]\n'other' = '/o'\nmodel = \"/m\"\ndata = \"/d\"\n"),
    ],
)  # fmt: skip
def test_values_are_replaced_in_place(before: str, after: str) -> None:
    found = with_sites(before, {"model": "/m", "data": "/d"})
    assert found == after
    assert with_sites(found, {"model": "/m", "data": "/d"}) == found


def test_table_in_pyproject() -> None:
    before = '[project]\nname = "x"\n\n[tool.verl-doctor]\nmarker = "y"\n'
    after = with_sites(before, {"model": 'a "b" \\ c'}, below=("tool", "verl-doctor"))
    assert after.startswith(before)
    assert toml.loads(after)["tool"]["verl-doctor"]["sites"] == {"model": 'a "b" \\ c'}


@pytest.mark.parametrize(
    "before",
    [
        'sites = { model = "/old" }\n',
        'sites.model = "/old"\n',
        '[sites.model]\npath = "/old"\n',
        'x = """\n[sites]\n"""\n',
        "[sites]\nmodel = '''/old'''\n",
        "[[[",
    ],
)
def test_ambiguous_edits_are_refused(before: str) -> None:
    with pytest.raises(CannotWriteError, match="by hand"):
        with_sites(before, {"model": "/m"})
