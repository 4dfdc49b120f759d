"""What a tree's `.gitignore` files exclude, without git: a copied tree may lack `.git`, and a node git.

The patterns are those of gitignore(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_CLASS_END = re.compile(r"\[!?\]?[^\]]*\]")


@dataclass(frozen=True)
class _Pattern:
    matches: re.Pattern[str]
    keeps: bool
    folders_alone: bool


@dataclass(frozen=True)
class Ignored:
    """The patterns that apply in a folder, from the top of the tree down. The last match decides."""

    patterns: tuple[_Pattern, ...] = ()

    def below(self, folder: str, text: str) -> Ignored:
        """Add the patterns in another `.gitignore`; `folder` is a path below the tree ("" for its top)."""
        found = (_pattern(line, folder) for line in text.splitlines())
        return Ignored((*self.patterns, *(pattern for pattern in found if pattern is not None)))

    def leaves_out(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path below the tree is excluded.

        The caller must not have entered an excluded folder.
        """
        left_out = False
        for pattern in self.patterns:
            if (
                (is_folder or not pattern.folders_alone)
                and pattern.keeps == left_out
                and pattern.matches.fullmatch(path)
            ):
                left_out = not pattern.keeps
        return left_out


def ignored(lines: Iterable[str]) -> Ignored:
    """Parse patterns that apply everywhere."""
    return Ignored().below("", "\n".join(lines))


def _pattern(line: str, folder: str) -> _Pattern | None:
    text = re.sub(r"(?<!\\) +$", "", line.rstrip("\r"))
    if not text or text.startswith("#"):
        return None
    keeps = text.startswith("!")
    text = text[keeps:]
    folders_alone = text.endswith("/")
    text = text.rstrip("/")
    if not text:
        return None
    anchored = "/" in text
    above = f"{re.escape(folder)}/" if folder else ""
    deeper = "" if anchored else "(?:.*/)?"
    try:
        matches = re.compile(above + deeper + _expression(text.lstrip("/")), re.DOTALL)
    except re.error:  # a class such as [z-a], which matches nothing
        return None
    return _Pattern(matches, keeps, folders_alone)


def _expression(text: str) -> str:
    """Convert a shell pattern to a regular expression: `**` matches any folders, `*` and `?` in one name."""
    *folders, last = text.split("/")
    found = ""
    for number, name in enumerate(folders):
        anywhere = "(?:.*/)?"
        if name != "**":
            found += f"{_of_name(name, f'f{number}')}/"
        elif not found.endswith(anywhere):
            found += anywhere
    return found + (".+" if last == "**" and folders else _of_name(last, "last"))


def _of_name(text: str, prefix: str) -> str:
    """Convert the part of a pattern within one name.

    All stars but the last match as little as possible, without backtracking.

    `fnmatch.translate` does the same; atomic groups exist only since Python 3.11.
    """
    first, *rest = _between_stars(text)
    found = first
    for number, part in enumerate(rest[:-1]):
        group = f"{prefix}_{number}"
        found += f"(?=(?P<{group}>[^/]*?{part}))(?P={group})"
    return found + (f"[^/]*{rest[-1]}" if rest else "")


def _between_stars(text: str) -> list[str]:
    """Return the parts between the stars, as regular expressions."""
    parts, at = [""], 0
    while at < len(text):
        if text[at] == "*":
            parts.append("")
            at += 1
        elif text[at] == "?":
            parts[-1] += "[^/]"
            at += 1
        elif match := _CLASS_END.match(text, at):
            inner = match[0][1:-1].replace("\\", "\\\\")
            parts[-1] += f"[{'^' + inner[1:] if inner.startswith('!') else inner}]"
            at = match.end()
        else:
            at += text[at] == "\\" and at + 1 < len(text)
            parts[-1] += re.escape(text[at])
            at += 1
    return parts
