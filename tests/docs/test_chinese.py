"""The Chinese pages have the same parts and commands as the English ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from verl_doctor.toolkit.commands.explain.quick_card import entries
from verl_doctor.toolkit.system import toml

ROOT = Path(__file__).parent.parent.parent
PAIRS = [("README.md", "README.zh-CN.md"), ("docs/getting-started.md", "docs/zh/getting-started.md")]


def outline(name: str) -> list[str]:
    """The headings, rows of tables, bullets and code of a page in order, without the words of either language."""
    parts, in_code = [], False
    for line in (ROOT / name).read_text("utf-8").splitlines():
        if line.startswith("```"):
            in_code = not in_code
            parts.append(line)
        elif in_code:
            parts.append(re.sub(r"\s+#.*", "", line))
        elif line.startswith("#"):
            parts.append(line.split()[0])
        elif line.startswith("| "):
            parts.append(
                f"row of {line.count('|') - 1}: {' '.join(re.findall(r'[*][*][0-9.]+[*][*]', line))}"
            )
        elif line.startswith("* "):
            parts.append("*")
    return parts


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_chinese_page_has_the_parts_of_the_english_one(english: str, chinese: str) -> None:
    assert outline(chinese) == outline(english)


@pytest.mark.parametrize(("english", "chinese"), PAIRS)
def test_chinese_page_has_the_options_and_files_of_the_english_one(english: str, chinese: str) -> None:
    def named(name: str) -> set[str]:
        code = re.findall(
            r"`([^`\n]+)`", re.sub(r"```.*?```", "", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)
        )
        return {word for text in code for word in text.split() if word.startswith("-") or "." in word}

    assert named(english) <= named(chinese)


def test_chinese_card_names_the_options_variables_and_rules_of_the_english_one() -> None:
    words = toml.loads((ROOT / "docs/zh/card.toml").read_text("utf-8"))
    for entry in entries():
        chinese = " ".join(words[entry.code].values())
        text = f"{entry.means}; {entry.do}"
        exact = re.findall(
            r"--[a-z_-]+|\b[A-Z]+\d{3}\b|\b\w+_\w+\b|\bverl-doctor [a-z]+\b|\bulimit -\w\b", text
        )
        assert [word for word in exact if word not in chinese] == [], entry.code
