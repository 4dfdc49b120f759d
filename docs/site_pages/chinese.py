"""The card of the commonest errors in Chinese: the words are in `zh/card.toml`, the rest is the card's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.commands.explain.quick_card import entries
from verl_doctor.toolkit.system import toml

WORDS = Path(__file__).parent.parent / "zh" / "card.toml"


def card() -> Iterator[str]:
    """The card as a Markdown table. Raises KeyError for an entry without a translation."""
    words = toml.loads(WORDS.read_text("utf-8"))
    yield "| 报错信息 | 含义 | 处理办法 | 规则 |"
    yield "|---|---|---|---|"
    for entry in entries():
        chinese = words[entry.code]
        yield (
            f"| `{entry.line}` | {chinese['means']} | {chinese['do']} | "
            f"[{entry.code}](../rules/{entry.code}.md) |"
        )
