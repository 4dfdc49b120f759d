"""A Python file of paths is read as a person reads it, and never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_doctor.toolkit.sources.python.site_paths import Setting, settings_in
from verl_doctor.toolkit.target import UsageError


def read(tmp_path: Path, text: str) -> dict[str, Setting]:
    file = tmp_path / "paths.py"
    file.write_text(text)
    return {setting.name: setting for setting in settings_in(file)}


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ('"/models/qwen"', "/models/qwen"),
        ("'~/data'", "~/data"),
        ("b + '/x'", None),
        ('BASE + "/x"', "/base/x"),
        ('f"{BASE}/x/{NAME}"', "/base/x/exp"),
        ('os.path.join(BASE, "x", "y")', "/base/x/y"),
        ('join(BASE, "/abs")', "/abs"),
        ('Path(BASE) / "x" / "y"', "/base/x/y"),
        ('pathlib.Path(BASE, "x")', "/base/x"),
        ('str(Path(BASE) / "x")', "/base/x"),
        ('Path(BASE).joinpath("x").resolve()', "/base/x"),
        ('(Path(BASE) / "x" / "y").parent', "/base/x"),
        ('os.path.expanduser("~/x")', "~/x"),
        ('os.environ["SCRATCH"] + "/x"', "$SCRATCH/x"),
        ('os.getenv("SCRATCH")', "$SCRATCH"),
        ('os.path.dirname(BASE + "/x")', "/base"),
        ('"/path/to/model"', "/path/to/model"),
        ('""', ""),
        ("None", ""),
        ('"s3://bucket/x"', "s3://bucket/x"),
        ('"just words"', None),
        ("3", None),
        ("[1]", None),
        ('os.getenv("X", "/y")', None),
        ("make_path()", None),
        ('BASE if NAME else "/x"', None),
        ('f"{BASE!r}/x"', None),
        ('"%s/x" % BASE', None),
        ('Path(BASE) + "x"', None),
        ('"a/b" / "c"', None),
        ("/".join(["(" * 60, "BASE", ")" * 60]).replace("/", ""), "/base"),
        ("+".join(["BASE"] * 60), None),
    ],
)  # fmt: skip
def test_value_is_shown_or_omitted_with_a_reason(tmp_path: Path, written: str, path: str | None) -> None:
    found = read(tmp_path, f'BASE = "/base"\nNAME = "exp"\nX = {written}\n')["X"]
    assert found.path == path
    assert bool(found.why) == (path is None)
    assert found.line == 3


def test_folder_of_the_file_is_known(tmp_path: Path) -> None:
    found = read(
        tmp_path, "A = Path(__file__).resolve().parent\nB = os.path.dirname(os.path.abspath(__file__))\n"
    )
    assert {setting.path for setting in found.values()} == {str(tmp_path)}


def test_file_is_not_executed(tmp_path: Path) -> None:
    found = read(tmp_path, f'import os\nX = open("{tmp_path}/made", "w").name\nY = "/y"\n')
    assert found["X"].path is None
    assert found["Y"].path == "/y"
    assert not (tmp_path / "made").exists()


def test_last_value_wins_and_conditions_are_shown(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        'A = "/old"\nA = "/new"\nB = "/b"\nif A:\n    B = "/c"\nC: str = "/c"\nD = "/d"\nD += "/e"\n',
    )
    assert found["A"].path == "/new"
    assert (found["B"].path, found["B"].why) == (None, "it is set under a condition")
    assert found["C"].path == "/c"
    assert found["D"].path is None


def test_value_derived_from_an_unknown_one_is_unknown(tmp_path: Path) -> None:
    found = read(tmp_path, 'A = "/a"\nA = f()\nB = A + "/b"\n')
    assert "needs A" in found["B"].why


def test_secrets_are_not_imported(tmp_path: Path) -> None:
    found = read(tmp_path, 'HF_TOKEN = "/hf_abcdefghijklmnopqrstuvwxyz012345"\nAPI_KEY = "sk/abc"\n')
    assert all(setting.path is None and "secret" in setting.why for setting in found.values())


def test_invalid_python_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not valid Python"):
        read(tmp_path, "MODEL = = 3\n")
    with pytest.raises(UsageError, match="cannot be read"):
        settings_in(tmp_path / "none.py")
