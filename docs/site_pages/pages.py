"""All generated pages by path, and writing them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from site_pages import chinese, commands, facts, releases, rules, schemas
from verl_doctor.toolkit.commands.explain import quick_card
from verl_doctor.toolkit.engine import registry
from verl_doctor.toolkit.rule import WHEN

FOLDERS = ("rules", "reference/commands", "reference/facts", "reference/schemas", "releases", "_generated")
"""Folders of the site that hold generated pages and nothing else. Git ignores them."""


def pages() -> Mapping[str, str]:
    """Every generated page: its path below the folder of the site, and its text."""
    known = registry.load()
    return {
        **rules.pages(known),
        **commands.pages(),
        **facts.pages(),
        **schemas.pages(),
        **releases.pages(),
        "_generated/card.md": "\n".join([*quick_card.card("rules/"), ""]),
        "_generated/card.zh.md": "\n".join([*chinese.card(), ""]),
        "_generated/phases.md": "\n".join([*_phases(), ""]),
    }


def _phases() -> Iterator[str]:
    yield "| phase | a job fails | how long after the start |"
    yield "|---|---|---|"
    for phase, (where, how_long) in WHEN.items():
        yield f"| `{phase}` | {where} | {how_long or 'depends on the job'} |"


def write_pages(folder: Path) -> None:
    """Write what has changed and remove pages of what is gone, so that Sphinx reads only what is new."""
    wanted = {folder / path: text for path, text in pages().items()}
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
    for generated in FOLDERS:
        for path in (folder / generated).glob("*.md"):
            if path not in wanted:
                path.unlink()
