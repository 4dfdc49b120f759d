"""Expands the words of a command, and keeps for each the place where it was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from verl_doctor.toolkit.sources.shell.expand import fields, text
from verl_doctor.toolkit.sources.shell.found import Argument
from verl_doctor.toolkit.sources.shell.scope import Scope
from verl_doctor.toolkit.sources.shell.state import Array, Element
from verl_doctor.toolkit.sources.shell.syntax import Assignment, Parameter, Text, Written

_EVERY = (Text("@"),)  # the index in `${name[@]}`


def arguments(words: Iterable[Written | Assignment], scope: Scope, path: str) -> list[Argument]:
    """Expand the words of a command in this file."""
    found: list[Argument] = []
    for word in words:
        if isinstance(word, Written):
            values = fields(word.parts, scope)
            passed_words = list(map(_argument, values, _sources(word, len(values), scope, path)))
            if rest := _rest(word, scope, path):
                passed_words[-1:] = [replace(last, rest=rest) for last in passed_words[-1:]]
            found += passed_words
        else:
            value = text(word.value, scope) if word.items is None else None
            found.append(
                Argument(None if value is None else f"{word.name}={value}", path, word.line, word.name)
            )
    return found


def _argument(value: str | None, source: Argument) -> Argument:
    """Return an expanded word. An element of an array keeps the place where the array was written."""
    if isinstance(value, Element):
        place = (value.path, value.line) if value.line else (source.path, source.line)
        return Argument(value, *place, value.written or source.written, value.conditional)
    return replace(source, text=value)


def _rest(word: Written, scope: Scope, path: str) -> tuple[Argument, ...]:
    """Return the elements of an array that are not passed since its index is missing: `$NAME`."""
    part = word.parts[0] if len(word.parts) == 1 else None
    if not isinstance(part, Parameter) or scope.is_zsh or part != Parameter(part.name, part.quoted):
        return ()
    array = scope.get(part.name)
    others = array[1:] if isinstance(array, Array) else []
    return tuple(Argument(other, path, word.line, word.raw) for other in others)


def _sources(word: Written, count: int, scope: Scope, path: str) -> list[Argument]:
    """Return the source of each word that a written one becomes: itself, or an array's if unknown.

    For unknown elements, it is the source of the elements of an array.
    """
    whole = Argument(None, path, word.line, word.raw)
    part = word.parts[0] if len(word.parts) == 1 else None
    array = (
        scope.get(part.name)
        if isinstance(part, Parameter) and part.index == _EVERY and not part.indirect
        else None
    )
    if not isinstance(array, Array) or len(array) != count:
        return [whole] * count
    return [
        whole if value is not None else Argument(None, array.path, item.line, item.raw)
        for value, item in zip(array, array.words, strict=True)
    ]


def expanded(words: Iterable[Written], scope: Scope, path: str) -> list[str | None]:
    """Expand words to the elements of an array."""
    return [
        value if value is None else Element(value, path, word.line, word.raw if len(values) == 1 else "")
        for word in words
        for values in (fields(word.parts, scope),)
        for value in values
    ]


def passed(words: Iterable[Argument]) -> list[str | None]:
    """Return the words as `$1`, `$2` and so on, with their places.

    An unknown word without quotes may be several, or none, which moves the others.
    """
    found: list[str | None] = []
    moved = False
    for word in words:
        moved = moved or (word.text is None and '"' not in word.written)
        known = None if moved else word.text
        found.append(
            None
            if known is None
            else Element(known, word.path, word.line, word.written, conditional=word.conditional)
        )
    return found
