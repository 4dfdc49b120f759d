"""Results of small functions, without running them."""

from __future__ import annotations

import ast
from textwrap import dedent
from typing import Any, NamedTuple

import pytest

from verl_doctor.toolkit.sources.python.evaluate import RAISES, UNCLEAR, returned


class Capability(NamedTuple):
    major: int
    minor: int


def answer(source: str, /, **arguments: Any) -> Any:
    function = ast.parse(dedent(source)).body[0]
    assert isinstance(function, ast.FunctionDef)
    table = {("cls.sizes", ()): (64, 128), ("Capability", (8, 0)): Capability(8, 0)}
    return returned(function, arguments, lambda name, given: table.get((name, given), UNCLEAR))


@pytest.mark.parametrize(
    ("body", "arguments", "expected"),
    [
        ("return size % 8 == 0 and size <= 256", {"size": 80}, True),
        ("return size % 8 == 0 and size <= 256", {"size": 100}, False),
        ("return 32 <= size < 64", {"size": 64}, False),
        ("return size in [64, 128]", {"size": 128}, True),
        ("sizes = cls.sizes()\n return (not sizes) or size in sizes", {"size": 80}, False),
        ("if size > 64:\n  return False\n return True", {"size": 64}, True),
        ("if size is None:\n  raise ValueError\n return size", {"size": None}, RAISES),
        ("return c >= Capability(8, 0)", {"c": Capability(9, 0)}, True),
        ("return c.major in (9, 10)", {"c": Capability(8, 6)}, False),
        ("return 'yes' if size else 'no'", {"size": 0}, "no"),
        ("pass", {}, None),
        ("return other", {}, UNCLEAR),
        ("return secret.value", {"secret": "x"}, UNCLEAR),
        ("return size < 'a'", {"size": 1}, UNCLEAR),
        ("while True:\n  pass", {}, UNCLEAR),
        ("import os\n return os", {}, UNCLEAR),
    ],
)
def test_function_results_are_computed(body: str, arguments: dict[str, Any], expected: Any) -> None:
    assert answer(f"def f(cls, size, c, secret):\n {body}\n", **arguments) == expected


def test_single_operand_may_decide() -> None:
    assert answer("def f(a):\n return unknown() and a\n", a=False) is False
    assert answer("def f(a):\n return unknown() or a\n", a=True) is True
    assert answer("def f(a):\n return unknown() or a\n", a=False) is UNCLEAR


def test_unclear_condition_keeps_only_a_common_result() -> None:
    source = "def f(a):\n if unknown():\n  b = 1\n else:\n  b = {}\n return {}\n"
    assert answer(source.format(1, "b"), a=0) == 1
    assert answer(source.format(2, "b"), a=0) is UNCLEAR
    assert answer(source.format(2, "a"), a=0) == 0


def test_true_is_not_equated_with_the_number_one() -> None:
    assert answer("def f():\n if unknown():\n  return True\n return 1\n") is UNCLEAR


def test_long_chain_of_unclear_branches_ends() -> None:
    chain = "".join(f" if unknown():\n  x = {number}\n" for number in range(60))
    assert answer(f"def f():\n{chain} return 1\n") is UNCLEAR


@pytest.mark.parametrize(
    "body",
    [
        "return 'a' * 10**9 * 1000000000",
        "return [0] * size",
        "return size * 'ab'",
        "return '%1000000000d' % 5",
        "return '%*d' % (1000000000, 5)",
        "return " + " * ".join(["size"] * 200),
        "return " + "9" * 400 + " / 3.0",
        "\n ".join(["text = 'ab'", *["text = text + text"] * 60, "return text"]),
    ],
)
def test_what_fills_the_memory_is_unclear(body: str) -> None:
    """Nothing interrupts such an operation, and a wrong setting may be one of its numbers."""
    assert answer(f"def f(size):\n {body}", size=10**12) is UNCLEAR
