"""Patches located by the lines around them: in shell scripts, YAML and TOML, and pure additions in Python.

A patch of a Python statement with its old line kept is a `Patch`, located by syntax. Everything else with a
marker becomes a `LinePatch`: the marked lines, the lines that they replaced if those are kept as comments,
and up to three lines before and after. Blank lines and indentation are ignored when searching.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from verl_doctor.toolkit.system.secret import may_hold_secret

_AROUND = 3
# What follows the marker's word at the start of a comment, if the word is a marker and the rest is the old
# line.
_OLD_CODE = re.compile(
    r"\S*\s*=.*|[\w.\[\]]+\(.*|[\w.\"'-]+:(\s.*)?|-\s+\S.*|(?:import|from|return|raise|export|yield|del"
    r"|assert)\s.*"
)
_PLAIN_VALUE = re.compile(
    r"[\s#+-]*(?:export\s+)?[\w.]+\s*[:=]\s*(?:\d{1,3}|true|false|null|none|on|off)\s*(?P<comment>(?:#.*)?)",
    re.IGNORECASE,
)
_EDGE = re.compile(r"\b(?:begin|start|end)\b", re.IGNORECASE)


@dataclass(frozen=True)
class LinePatch:
    """Marked lines of a text file.

    `path` is below the folder `base`, `line` (from 1) is where the first of them was.

    `before` and `after` are surrounding lines without blank ones, nearest last and nearest first. `old` are
    the lines that `new` replaced, () for an addition. `new` are the present lines, including markers and kept
    comments. `block`: the lines are between a begin and an end, where comments need not be old lines.
    """

    path: str
    base: str
    marker: str
    line: int
    before: tuple[str, ...]
    old: tuple[str, ...]
    new: tuple[str, ...]
    after: tuple[str, ...]
    block: bool = False

    @property
    def identity(self) -> tuple[object, ...]:
        """What two trees with this patch have in common."""
        return self.path, self.base, self.marker, _essence(self.new)

    @property
    def place(self) -> str:
        """Its place in readable form."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class NoLinePatch:
    """Marked lines that cannot be stored: the first of them, and the reason."""

    line: int
    marker: str
    reason: str


@dataclass(frozen=True)
class Place:
    """Where a patch belongs in another text: its lines replace `lines[start:end]`, indented by `indent`."""

    start: int
    end: int
    indent: tuple[str, str] = ("", "")


def line_patches(
    path: str, base: str, lines: Sequence[str], marked: Mapping[int, str]
) -> Iterator[LinePatch | NoLinePatch]:
    """Yield the patches of one file, derived from its marked lines."""
    for marker, first, last in runs(marked):
        yield _line_patch(path, base, lines, marker, first, last)


def runs(marked: Mapping[int, str]) -> Iterator[tuple[str, int, int]]:
    """Yield marker, first and last line (from 1) of consecutive marked lines."""
    numbers = enumerate(sorted(marked))
    for _, group in groupby(numbers, key=lambda pair: (pair[1] - pair[0], marked[pair[1]])):
        run = [number for _, number in group]
        yield marked[run[0]], run[0], run[-1]


def _line_patch(
    path: str, base: str, lines: Sequence[str], marker: str, first: int, last: int
) -> LinePatch | NoLinePatch:
    block = bool(_EDGE.search(lines[first - 1])) and last > first
    here = lines[first - 1 : last]
    old = tuple(code for line in here if (code := _kept(line, marker)) is not None)
    has_code = any(line.strip() and not line.lstrip().startswith("#") for line in here)
    if not has_code and old and last < len(lines) and lines[last].strip():
        last += 1  # the line that replaces the kept one has no marker of its own
        here = lines[first - 1 : last]
    elif not has_code:
        return NoLinePatch(
            first, marker, "no line of code is marked; put the marker at the end of each changed line"
        )
    around = (_texts(reversed(lines[: first - 1])), _texts(lines[last:]))
    if any(map(_may_hold_secret, (*old, *here, *around[0], *around[1]))):
        return NoLinePatch(first, marker, "a line of it, or beside it, looks as if it held a secret")
    return LinePatch(path, base, marker, first, around[0][::-1], old, tuple(here), around[1], block)


def _may_hold_secret(line: str) -> bool:
    """Return whether a line may hold a secret. Flags and small numbers are none, whatever their name."""
    if match := _PLAIN_VALUE.fullmatch(line):
        return may_hold_secret(match["comment"])
    return may_hold_secret(line)


def _texts(lines: Iterator[str] | Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    for line in lines:
        if line.strip():
            found.append(line)
        if len(found) == _AROUND:
            break
    return tuple(found)


def _kept(line: str, marker: str) -> str | None:
    """Return the old line that a marked comment keeps, None if it keeps none."""
    match = re.fullmatch(r"(?P<indent>\s*)#+ ?(?P<rest>.*)", line)
    if match is None:
        return None
    word = re.escape(marker)
    rest = match["rest"]
    behind = re.fullmatch(rf"(?P<code>.*\S)\s*#[^#]*\b{word}\b.*", rest)
    ahead = re.fullmatch(rf"\s*{word}\s*[:>|-]*\s+(?P<code>\S.*)", rest)
    if behind:
        return f"{match['indent']}{behind['code']}"
    code = ahead["code"] if ahead else rest if not re.search(rf"\b{word}\b", rest) else ""
    return f"{match['indent']}{code.rstrip()}" if _OLD_CODE.fullmatch(code.strip()) else None


def place_of(patch: LinePatch, lines: Sequence[str]) -> Place | str:
    """Return where a patch belongs in these lines, or why it has no place there."""
    solid = [number for number, line in enumerate(lines) if line.strip()]
    texts = [lines[number].strip() for number in solid]
    old = [line.strip() for line in patch.old]
    spots = _spots(patch, texts, old)
    if not spots and patch.block and old:
        old = []
        spots = _spots(patch, texts, old)
    if not spots:
        return "the lines that it replaces are missing" if old else "the lines around it are not adjacent"
    best = max(spots.values())
    starts = [spot for spot, score in spots.items() if score == best]
    if len(starts) > 1:
        return (
            f"it fits in {len(starts)} places, in lines "
            f"{', '.join(str(_line(solid, s, lines)) for s in starts)}"
        )
    at = starts[0]
    start = solid[at] if old else (solid[at - 1] + 1 if at else 0)
    end = solid[at + len(old) - 1] + 1 if old else start
    return Place(start, end, _indents(patch, lines, solid, at, bool(old)))


def _line(solid: Sequence[int], spot: int, lines: Sequence[str]) -> int:
    return solid[spot] + 1 if spot < len(solid) else len(lines) + 1


def _spots(patch: LinePatch, texts: Sequence[str], old: Sequence[str]) -> dict[int, int]:
    """Return the places of `old` in the texts, each with the number of matching neighbours.

    An addition belongs where its neighbours meet. An old line that occurs once needs no matching neighbour,
    one that occurs several times needs one, and an addition both.
    """
    found: dict[int, int] = {}
    wanted = len(old)
    for at in range(len(texts) - wanted + 1):
        if list(texts[at : at + wanted]) == list(old):
            before = _agree(reversed(patch.before), reversed(texts[:at]))
            after = _agree(patch.after, texts[at + wanted :])
            nearest = bool(before or not (patch.before or at)) + bool(
                after or not (patch.after or texts[at + wanted :])
            )
            if wanted or nearest == 2:
                found[at] = before + after
    return found


def _agree(lines: Iterator[str] | Sequence[str], texts: Iterator[str] | Sequence[str]) -> int:
    """Return how many lines match, starting with the nearest."""
    count = 0
    for line, text in zip(lines, texts, strict=False):
        if line.strip() != text:
            break
        count += 1
    return count


def _indents(
    patch: LinePatch, lines: Sequence[str], solid: Sequence[int], at: int, replaces: bool
) -> tuple[str, str]:
    """Return the indentation of a line in the patch's own tree, and of the same line here."""
    if replaces:
        return _indent(patch.old[0]), _indent(lines[solid[at]])
    if at and patch.before:
        return _indent(patch.before[-1]), _indent(lines[solid[at - 1]])
    if patch.after and at < len(solid):
        return _indent(patch.after[0]), _indent(lines[solid[at]])
    return "", ""


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def applied(patch: LinePatch, place: Place, lines: Sequence[str]) -> list[str]:
    """Return the lines with the patch applied."""
    old, here = place.indent
    new = [here + line[len(old) :] if line.startswith(old) and line.strip() else line for line in patch.new]
    return [*lines[: place.start], *new, *lines[place.end :]]


def _essence(lines: Sequence[str]) -> str:
    return "".join("".join(lines).split())
