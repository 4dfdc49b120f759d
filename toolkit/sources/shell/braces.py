"""Expands `a{b,c}` and `{1..3}` in words, as the shell does before all else."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.toolkit.sources.shell.syntax import Parameter, Part, ShellWord, Text

_RANGE = re.compile(r"(?:(-?\d+)\.\.(-?\d+)|([A-Za-z])\.\.([A-Za-z]))(?:\.\.(-?\d+))?")
_LONGEST_RANGE = 100  # characters: Python refuses to read numbers of thousands of digits
MOST_WORDS = 10_000
"""Words that one written word may become."""


def braces(word: ShellWord, *, names_grow: bool) -> Iterator[ShellWord]:
    """Expand `a{b,c}` to `ab` and `ac`, `{1..3}` to 1, 2 and 3. Only unquoted braces count.

    With `names_grow`, `$a{b,c}` becomes the variables `$ab` and `$ac`, as in bash, which expands braces
    first.
    """
    if not any(isinstance(part, Text) and not part.quoted and "{" in part.text for part in word):
        yield word
        return
    # One element for each unquoted character; other parts stay whole.
    atoms: list[Part] = []
    for part in word:
        if isinstance(part, Text) and not part.quoted:
            atoms += [Text(sign) for sign in part.text]
        else:
            atoms.append(part)
    for variant in _variants(atoms, [MOST_WORDS]):
        yield _merged(variant, names_grow=names_grow)


def _merged(atoms: list[Part], *, names_grow: bool) -> ShellWord:
    parts: list[Part] = []
    for atom in atoms:
        last = parts[-1] if parts else None
        if not isinstance(atom, Text) or atom.quoted:
            parts.append(atom)
        elif isinstance(last, Text) and not last.quoted:
            parts[-1] = Text(last.text + atom.text)
        elif names_grow and isinstance(last, Parameter) and _goes_on(last, atom.text):
            parts[-1] = replace(last, name=last.name + atom.text)
        else:
            parts.append(atom)
    return tuple(parts)


def _goes_on(part: Parameter, text: str) -> bool:
    """Return whether a character belongs to the name before it, with which braces have joined it."""
    return part.bare and not part.quoted and re.match(r"\w", text) is not None


def _variants(atoms: list[Part], left: list[int]) -> Iterator[list[Part]]:
    for start, (end, commas) in sorted(_pairs(atoms).items()):
        choices: list[list[Part]]
        inside = atoms[start + 1 : min(end, start + 2 + _LONGEST_RANGE)]
        if commas:
            bounds = [start, *commas, end]
            choices = [atoms[a + 1 : b] for a, b in itertools.pairwise(bounds)]
        else:
            if len(inside) > _LONGEST_RANGE:
                continue
            match = _RANGE.fullmatch("".join(part.text for part in inside if isinstance(part, Text)))
            if not match or len(match[0]) != len(inside):
                continue
            numbers = _numbers(match)
            if numbers is None:
                continue
            choices = [[Text(number)] for number in numbers]
        tails = list(_variants(atoms[end + 1 :], left))
        for choice in choices:
            for middle in _variants(choice, left):
                for tail in tails:
                    left[0] -= 1
                    if left[0] < 0:
                        return
                    yield [*atoms[:start], *middle, *tail]
        return
    yield atoms


def _numbers(match: re.Match[str]) -> list[str] | None:
    """Return what `{low..high..step}` becomes; None when that is very long."""
    letters = match[3] is not None
    low, high = (ord(match[3]), ord(match[4])) if letters else (int(match[1]), int(match[2]))
    step = abs(int(match[5] or 1)) or 1
    if abs(high - low) > MOST_WORDS:
        return None
    found = range(low, high + 1, step) if high >= low else range(low, high - 1, -step)
    if letters:
        return [chr(number) for number in found]
    padded = any(re.match(r"-?0\d", end) for end in (match[1], match[2]))
    width = max(len(match[1]), len(match[2])) if padded else 0
    return [f"{number:0{width}d}" for number in found]


def _pairs(atoms: list[Part]) -> dict[int, tuple[int, list[int]]]:
    """Return for each opening brace that is closed the place of the closing one, and of its own commas."""
    found: dict[int, tuple[int, list[int]]] = {}
    waiting: list[tuple[int, list[int]]] = []
    for place, atom in enumerate(atoms):
        sign = atom.text if isinstance(atom, Text) and not atom.quoted else ""
        if sign == "{":
            waiting.append((place, []))
        elif sign == "}" and waiting:
            start, commas = waiting.pop()
            found[start] = (place, commas)
        elif sign == "," and waiting:
            waiting[-1][1].append(place)
    return found
