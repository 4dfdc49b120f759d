"""Draw docs/_static/demo.svg: a real run of check, fix and undo on the miniature of `verl-doctor demo`.

    python docs/picture.py

What differs from run to run (folders, times, the release of Python) is replaced, so the picture changes only
when the output does. `tests/docs/test_picture.py` compares its words with a new run.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from verl_doctor.toolkit.commands.demo.demo import build

PICTURE = Path(__file__).parent / "_static" / "demo.svg"
COMMANDS = (("check", "--select", "VLLM"), ("fix", "--apply", "--select", "VLLM"), ("undo",))

_COLUMNS = 110
_STEADY = (
    (re.compile(r"Python 3\.\d+\.\d+"), "Python 3.11.7"),
    (re.compile(r"python3\.\d+"), "python3.11"),
    (re.compile(r"\d+\.\d s$"), "0.3 s"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"), "2026-11-22 09:00 UTC"),
)
_STYLES = (
    (r"^\$ .*", "bold"),
    (r"^(WILL FAIL|FAIL)\b|\berror\b(?= )", "bold red"),
    (r"^(REPAIRED|NO FAULT FOUND)\b|^repaired\b|: restored$", "bold green"),
    (r"\bno fault found\b", "green"),
    (r"\bwill fail\b", "red"),
    (r"\b[A-Z]{2,5}\d{3}\b", "cyan"),
    (r"^ {2}(stops|at|found|wanted|expected|do|fix)\b", "dim"),
    (r"(?<=\s)# .*", "dim"),
)
# rich's own frame loads fonts from the network.
_FRAME = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>verl-doctor finds a fault, repairs it, and undoes the repair</title>
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def transcript() -> list[str]:
    """The commands and what they print, as lines of the picture."""
    with tempfile.TemporaryDirectory(prefix="verl-doctor-picture-") as name:
        home = Path(name).resolve()
        environment = build(home / "env")
        lines = [line for command in COMMANDS for line in _run(command, home, environment)]
    return [piece for line in lines for piece in _folded(_steady(line, home))]


def _run(arguments: tuple[str, ...], home: Path, environment: Path) -> Iterator[str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR", "LANG") if name in os.environ}
    private = {"HOME": str(home), "VIRTUAL_ENV": str(environment)}
    done = subprocess.run(
        [sys.executable, "-m", "verl_doctor.toolkit", *arguments],
        cwd=home,
        env={**kept, **private},
        capture_output=True,
        text=True,
        check=False,
    )
    yield f"$ verl-doctor {' '.join(arguments)}"
    yield from done.stdout.splitlines()
    yield ""


def _steady(line: str, home: Path) -> str:
    line = line.replace(str(home), "~")
    for pattern, text in _STEADY:
        line = pattern.sub(text, line)
    return line


def _folded(line: str) -> list[str]:
    """A line as a terminal of so many columns shows it, its continuation below its text."""
    indent = re.match(r"\s*(?:\S+\s{2,})?", line)
    hanging = min(len(indent[0]) if indent else 0, _COLUMNS // 4)
    return textwrap.wrap(
        line,
        _COLUMNS,
        subsequent_indent=" " * hanging,
        drop_whitespace=True,
        break_on_hyphens=False,
        replace_whitespace=False,
    ) or [""]


def drawn(lines: list[str]) -> str:
    """The picture as SVG."""
    console = Console(
        record=True, width=_COLUMNS, file=StringIO(), color_system="truecolor", force_terminal=True
    )
    for line in lines:
        text = Text(line)
        for pattern, style in _STYLES:
            text.highlight_regex(pattern, style)
        console.print(text, soft_wrap=True)
    return console.export_svg(title="verl-doctor", theme=DIMMED_MONOKAI, code_format=_FRAME, unique_id="demo")


def words_of(svg: str) -> str:
    """All words of a picture, in order."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    plain = " ".join(texts).replace("&#160;", " ")
    for escaped, character in (
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", '"'),
        ("&#x27;", "'"),
        ("&amp;", "&"),
    ):
        plain = plain.replace(escaped, character)
    return "".join(plain.split())


if __name__ == "__main__":
    PICTURE.write_text(drawn(transcript()), "utf-8")
