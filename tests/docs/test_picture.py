"""The picture in the README matches the current output."""

from __future__ import annotations

import sys
from importlib.metadata import version

import pytest
from packaging.version import Version
from support.places import ROOT

if Version(version("rich")) < Version("13"):
    pytest.skip("the picture is drawn with a rich that names its styles", allow_module_level=True)
sys.path.insert(0, str(ROOT / "docs"))

import picture


@pytest.mark.slow
def test_picture_shows_the_output_of_a_run() -> None:
    run = "".join("".join(line.split()) for line in picture.transcript())
    drawn = picture.words_of(picture.PICTURE.read_text("utf-8"))
    assert drawn == f"verl-doctor{run}", "run python docs/picture.py to redraw it"


def test_picture_loads_nothing_and_keeps_every_word() -> None:
    svg = picture.drawn(["$ verl-doctor check", 'WILL FAIL  <a & b> "c"'])
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    assert picture.words_of(svg) == 'verl-doctor$verl-doctorcheckWILLFAIL<a&b>"c"'
