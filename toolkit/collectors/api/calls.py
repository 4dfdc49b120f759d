"""Matching of call arguments against a signature, one result each, so that a finding can name its line."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from verl_doctor.toolkit.sources.python.symbols import Parameter, Signature

Kind = Literal["keyword", "positional", "meaning", "required"]


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword argument of a call, written in the call itself or in a dict that is spread into it."""

    name: str
    at: tuple[int, int]
    value: ast.expr | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """The result for one argument.

    `at` is its line and column, `nearest` the parameter name to compare it with.
    """

    kind: Kind
    name: str
    at: tuple[int, int]
    fits: bool
    nearest: str = ""


def keyword_fit(keyword: Keyword, signature: Signature) -> Fit:
    """Return whether a callee accepts this keyword."""
    accepted = [parameter.name for parameter in signature.parameters if parameter.kind != "positional"]
    fits = keyword.name in accepted or signature.more_keywords
    return Fit("keyword", keyword.name, keyword.at, fits, "" if fits else nearest(keyword.name, accepted))


def places_fit(
    call: ast.Call, keywords: Iterable[Keyword], signature: Signature, *, all_known: bool
) -> Iterator[Fit]:
    """Whether the positional arguments fit and no required argument is missing.

    `all_known`: no keyword is hidden in a `**`.
    """
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return
    at = (call.lineno, call.col_offset)
    places = [parameter for parameter in signature.parameters if parameter.kind != "keyword"]
    shown = ", ".join(parameter.name for parameter in signature.parameters)
    if call.args:
        fits = len(call.args) <= len(places) or signature.more_positional
        yield Fit("positional", str(len(call.args)), at, fits, "" if fits else shown)
        if not fits:
            return
        if _meanings_moved(call.args, places):
            yield Fit("meaning", ", ".join(_tail(node) for node in call.args), at, fits=False, nearest=shown)
    if all_known:
        filled = {parameter.name for parameter in places[: len(call.args)]} | {
            keyword.name for keyword in keywords
        }
        for parameter in signature.parameters:
            if parameter.required and parameter.name not in filled:
                yield Fit("required", parameter.name, at, fits=False, nearest=shown)


def _meanings_moved(arguments: list[ast.expr], places: list[Parameter]) -> bool:
    """Return whether at least two arguments have the name of a parameter in another position.

    One match could be chance; two mean that the call was written for a different parameter order.
    """
    names = [parameter.name for parameter in places]
    moved = [
        _tail(argument)
        for index, argument in enumerate(arguments[: len(names)])
        if _tail(argument) in names and names[index] != _tail(argument)
    ]
    return len(set(moved)) >= 2


def _tail(node: ast.expr) -> str:
    """Return the last word of `a.b.c`, which usually names the argument."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "?"


def nearest(name: str, accepted: Iterable[str]) -> str:
    """Return the most similar name: all words but one are equal, or nearly all letters."""
    names, words = list(accepted), set(name.split("_"))
    alike = [other for other in names if len(words & set(other.split("_"))) >= max(2, len(words) - 1)]
    return (alike or get_close_matches(name, names, 1, 0.8) or [""])[0]
