"""The report compared with verl's script for issues, whose items are read from its sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.report_seen import seen

from verl_doctor.toolkit.commands.report import render_markdown, view
from verl_doctor.toolkit.machine import Machine

pytestmark = pytest.mark.real

# Items with another name in our report, or printed only on errors there.
_CALLED = {"GPU Type": "GPU 0-7 Type", "GPU Memory": "GPU 0-7 Memory"}
_FAULTS = re.compile(r"[Ee]rror|not found|Did not find|No |Could not|not available|Failed|very likely")


def labels(source: str) -> Iterator[str]:
    """The words before the colons of all that it prints."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "print" and node.args):
            continue
        first = node.args[0]
        parts = first.values if isinstance(first, ast.JoinedStr) else [first]
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "" for part in parts)
        if not _FAULTS.search(text):
            yield text


@pytest.mark.parametrize("version", ["0.9.1", "0.6.1"])
def test_every_label_printed_by_the_script_is_in_the_report(
    wheel_tree: Callable[[str, str], Path], version: str
) -> None:
    script = wheel_tree("verl", version) / "scripts" / "diagnose.py"
    made = view.make(seen(), Machine(environ={}), masked=True)
    text = "\n".join(render_markdown.render(made.page)).replace("\\", "").lower()
    names = {
        " ".join(label.partition(":")[0].replace("\t", " ").split())
        for label in labels(script.read_text("utf-8"))
        if ":" in label
    }
    assert len(names) > 12
    assert [name for name in sorted(names) if _CALLED.get(name, name).lower() not in text] == []
