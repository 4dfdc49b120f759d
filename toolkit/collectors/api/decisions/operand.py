"""Notes what decided the result of an operation whose operands depend on a job's settings.

Whatever does not change the result is not noted: another job that differs only in it uses the same result.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from verl_doctor.toolkit.collectors.api.settings import Settings, SettingsSection, compares, is_true
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR

THERE: Final = ("there",)
"""A value that exists, so is not None, but is otherwise unknown."""
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass(frozen=True, slots=True)
class Operand:
    """The value of an expression, what was consulted for it, and the key whose value it is.

    The key is "" if the value is not just that of a key.
    """

    value: Any
    consulted: Sequence[str]
    key: str = ""

    @property
    def consulted_besides_key(self) -> list[str]:
        """What was consulted, but for one look-up of the key."""
        others = list(self.consulted)
        others.remove(self.key)
        return others


def is_plain(value: Any) -> bool:
    """Return whether Python can compare the value: not if it is only known to exist."""
    return (
        value is not UNCLEAR
        and value is not THERE
        and value is not MISSING
        and not isinstance(value, SettingsSection)
    )


def note(operands: Iterable[Operand], settings: Settings) -> None:
    """Note all that was consulted for these operands."""
    for operand in operands:
        settings.note(operand.consulted)


def note_truth(operand: Operand, settings: Settings) -> None:
    """Note what was consulted for an operand of which only the truth counts."""
    if operand.key:
        settings.note([*operand.consulted_besides_key, is_true(operand.key)])
    else:
        settings.note(operand.consulted)


def is_unclear(operands: Iterable[Operand], settings: Settings) -> bool:
    """Return whether an operand is not plain, and note what was consulted for that one alone.

    Whatever the others are, the result is unclear.
    """
    unclear = [operand for operand in operands if not is_plain(operand.value)]
    note(unclear[:1], settings)
    return bool(unclear)


def note_comparison(operands: Sequence[Operand], ops: Sequence[ast.cmpop], settings: Settings) -> None:
    """Note the comparison itself if one operand is a key's value and nothing was consulted for the other.

    An operand that is None makes an order unclear, whatever the other one is.
    """
    nothing = [operand for operand in operands if operand.value is None]
    if len(operands) == 2 and nothing and isinstance(ops[0], _ORDERS):
        note_comparison([nothing[0], Operand(None, ())], [ast.Is()], settings)
        return
    if len(operands) == 2:
        for place, (operand, other) in enumerate((operands, operands[::-1])):
            name = operand.key and compares(operand.key, type(ops[0]), other.value, key_is_left=not place)
            if name and not other.consulted:
                settings.note([*operand.consulted_besides_key, name])
                return
    note(operands, settings)
