"""Converts many node names to a short list that schedulers read, `node[001-100,107]`, and back.

The syntax is Slurm's, which pdsh and ClusterShell read too: numbers in brackets, the lower end defines the
number of digits, at most two brackets in a name (slurm.conf(5), NodeName). Slurm requires one of them at the
end of a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice, product

_NUMBER = re.compile(r"([0-9]+)")
_OF_ANOTHER_KIND = re.compile(r"[\[\],\s]|:.*:")  # not allowed in brackets; also in IPv6 addresses
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_ITEMS = re.compile(r"(?:\[[^\]]*\]|[^,\[])+")

_MEANT = re.compile(r"[\[\],\s]")
_MOST = 100_000
"""The maximum number of names in a list: ten times the nodes of any Ray cluster."""

_LINE = 120
"""The maximum length of a node list in a line of text."""

_Parts = tuple[str, ...]
"""A name cut at its numbers: text, number, text, number... text."""


def fold(names: Iterable[str]) -> str:
    """Return all names, each once, with their numbers as ranges: alphabetically, numbers by value."""
    families: dict[tuple[str, ...], list[_Parts]] = {}
    for name in dict.fromkeys(names):
        parts = (name,) if _OF_ANOTHER_KIND.search(name) else tuple(_NUMBER.split(name))
        families.setdefault(parts[::2], []).append(parts)
    return ",".join(item for texts in sorted(families) for item in _family(families[texts]))


def expand(folded: str) -> list[str]:
    """Return the names of a list written by `fold`, or by a person in the same syntax.

    Raises ValueError when a range is invalid, or has so many names that it must be a mistake.
    """
    if re.search(r"[\[\]]", _BRACKETS.sub("", folded)):
        raise ValueError(f"{folded:.60} has an unmatched bracket")
    names = list(islice((name for item in _ITEMS.findall(folded) for name in _names(item)), _MOST + 1))
    if len(names) > _MOST:
        raise ValueError(f"{folded:.60} stands for more than {_MOST:,} names")
    return names


def plain(name: str) -> str:
    """Return a name that is valid in a list: special characters become `_`."""
    return _MEANT.sub("_", name) or "_"


def shortened(folded: str, count: int) -> str:
    """Return a list for a line of text. A short list can be pasted; a long one is cut, with the total."""
    items = _ITEMS.findall(folded)
    kept: list[str] = []
    length = 0
    for item in items:
        length += len(item) + 1
        if kept and length > _LINE:
            break
        kept.append(item if len(item) <= _LINE else item[:_LINE] + "...")
    if len(kept) == len(items) and not kept[-1].endswith("..."):
        return folded
    return f"{','.join(kept)} and others, {count:,} in all"


def _family(members: list[_Parts]) -> Iterator[str]:
    """Fold names that differ only in numbers: by the last number that varies, then by an earlier one."""
    texts = members[0][::2]
    rows = {parts[1::2] for parts in members}
    varying = [place for place in range(len(texts) - 1) if len({row[place] for row in rows}) > 1]
    for place in reversed(varying[-2:]):
        rows = _folded_at(rows, place)
    for row in sorted(rows, key=_order):
        numbers = [*_closed(row, texts[-1]), ""]
        yield "".join(text + number for text, number in zip(texts, numbers, strict=True))


def _folded_at(rows: set[_Parts], place: int) -> set[_Parts]:
    """Join the rows that are equal except for one number."""
    others: dict[tuple[_Parts, _Parts], set[str]] = {}
    for row in rows:
        others.setdefault((row[:place], row[place + 1 :]), set()).add(row[place])
    return {(*before, _ranges(numbers), *after) for (before, after), numbers in others.items()}


def _ranges(numbers: set[str]) -> str:
    """Return `[001-100,107]`, or a single number alone."""
    if len(numbers) == 1:
        return next(iter(numbers))
    left = set(numbers)
    found = []
    for first in sorted(numbers, key=lambda text: (int(text), len(text))):
        last = first
        if first not in left:
            continue
        left.remove(first)
        while (following := str(int(last) + 1).zfill(len(first))) in left:
            left.remove(following)
            last = following
        found.append(first if first == last else f"{first}-{last}")
    return f"[{','.join(found)}]"


def _closed(row: _Parts, end: str) -> _Parts:
    """Also bracket the last number, as Slurm requires after an earlier bracket: `node[1-4]-ib[0]`."""
    if end or not row or row[-1].startswith("[") or not any(number.startswith("[") for number in row):
        return row
    return (*row[:-1], f"[{row[-1]}]") if sum(number.startswith("[") for number in row) == 1 else row


def _order(row: _Parts) -> tuple[tuple[int, str], ...]:
    return tuple((int(_NUMBER.findall(number)[0]), number) for number in row)


def _names(item: str) -> Iterator[str]:
    pieces = _BRACKETS.split(item)
    choices = [list(_numbers(piece)) if place % 2 else [piece] for place, piece in enumerate(pieces)]
    return map("".join, product(*choices))


def _numbers(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"[{ranges}] is not a list of numbers and ranges")
        if int(last or first) < int(first):
            raise ValueError(f"[{ranges}] counts backwards")
        if int(last or first) - int(first) > _MOST:
            raise ValueError(f"[{ranges}] stands for more than {_MOST:,} names")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))
