"""States the condition of an assertion in words, from the source line that a traceback shows.

An assertion without a message, or with numbers alone, says nothing to whoever has not read the code. Its
condition does: `assert self.lr_decay_steps > 0` is "lr_decay_steps must be greater than 0".
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Sequence

_ASSERT = re.compile(r"assert (.+)$")
_MESSAGE = re.compile(r",\s*(?:\(|[fr]{0,2}[\"'].*)?$")  # where the message begins, or the rest of a cut line
_OBJECTS = re.compile(r"\b(?:self|cls)\.(?=[A-Za-z_])")
_COMPARED = {
    ast.Gt: "must be greater than",
    ast.GtE: "must be at least",
    ast.Lt: "must be less than",
    ast.LtE: "must be at most",
    ast.Eq: "must be",
    ast.NotEq: "must not be",
    ast.Is: "must be",
    ast.IsNot: "must not be",
    ast.In: "must be one of",
    ast.NotIn: "must be none of",
}
_LONGEST = 160  # characters of a condition that is repeated


def in_words(code: str) -> str:
    """Return the condition of an assertion in words; "" if the line is no assertion or cannot be read."""
    condition = _condition(code)
    words = "" if condition is None else _words(condition)
    return words if len(words) <= _LONGEST else ""


def operands(code: str) -> tuple[str, ...]:
    """Return the names and attributes that an assertion's condition uses, as dotted names without `self`."""
    condition = _condition(code)
    if condition is None:
        return ()
    parts = {id(child.value) for child in ast.walk(condition) if isinstance(child, ast.Attribute)}
    called = {id(child.func) for child in ast.walk(condition) if isinstance(child, ast.Call)}
    found = (
        _plain(node)
        for node in ast.walk(condition)
        if isinstance(node, (ast.Name, ast.Attribute)) and id(node) not in parts | called
    )
    return tuple(dict.fromkeys(name for name in found if re.fullmatch(r"[\w.]+", name)))


def chosen(code: str) -> tuple[str, str] | None:
    """Return the name and the value of an assertion that accepts one value, or None for any other.

    An example is `config.a.b in [Enum.GRPO]`.
    """
    condition = _condition(code)
    if not isinstance(condition, ast.Compare) or len(condition.ops) != 1:
        return None
    operator, value = condition.ops[0], condition.comparators[0]
    if isinstance(operator, ast.In) and isinstance(value, (ast.List, ast.Tuple)) and len(value.elts) == 1:
        value = value.elts[0]
    elif not isinstance(operator, ast.Eq):
        return None
    if isinstance(value, ast.Attribute) and value.attr.isupper():
        text = value.attr.lower()
    elif isinstance(value, ast.Constant) and isinstance(value.value, (str, bool)):
        text = str(value.value)
    else:
        return None
    return (_plain(condition.left), text) if isinstance(condition.left, ast.Attribute) else None


def _condition(code: str) -> ast.expr | None:
    found = _ASSERT.match(code.strip())
    if found is None:
        return None
    for text in _candidates(found[1]):
        try:
            read = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return read.elts[0] if isinstance(read, ast.Tuple) and read.elts else read
    return None


def _candidates(text: str) -> Sequence[str]:
    """Return what may be the condition: the line may end within the message."""
    return (text, text.rstrip(" ,\\("), _MESSAGE.sub("", text))


def _words(node: ast.expr) -> str:
    """Return a condition in words; "" if that would not explain what is wanted."""
    if isinstance(node, ast.BoolOp):
        parts = [_words(value) for value in node.values]
        return (" and " if isinstance(node.op, ast.And) else ", or ").join(parts) if all(parts) else ""
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    if isinstance(node, ast.UnaryOp) and negated and isinstance(node.operand, ast.BoolOp):
        flipped = ast.Or() if isinstance(node.operand.op, ast.And) else ast.And()
        parts_of = [ast.UnaryOp(ast.Not(), value) for value in node.operand.values]
        return _words(ast.BoolOp(flipped, list(parts_of)))
    if isinstance(node, ast.UnaryOp) and negated and isinstance(node.operand, ast.UnaryOp):
        return _words(node.operand.operand) if isinstance(node.operand.op, ast.Not) else ""
    inner = node.operand if isinstance(node, ast.UnaryOp) and negated else node
    if isinstance(inner, ast.Call) and _plain(inner.func) == "isinstance" and len(inner.args) == 2:
        kinds = _kinds(inner.args[1])
        must = "must not be" if negated else "must be"
        return f"{_plain(inner.args[0])} {must} {' or '.join(kinds)}" if all(kinds) else ""
    if isinstance(inner, (ast.Name, ast.Attribute, ast.Subscript)):
        return f"{_plain(inner)} must be {'empty or off' if negated else 'set'}"
    if isinstance(node, ast.Compare):
        left, words = node.left, []
        for operator, right in zip(node.ops, node.comparators, strict=True):
            words.append(_compared(left, operator, right))
            left = right
        return " and ".join(words)
    return ""


def _kinds(node: ast.expr) -> list[str]:
    """Return the types of an `isinstance`, each with its article; "" for one whose name is unknown."""
    if isinstance(node, ast.Tuple):
        return [kind for part in node.elts for kind in _kinds(part)] or [""]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_kinds(node.left), *_kinds(node.right)]
    name = ast.unparse(node)
    if name in ("None", "type(None)"):
        return ["None"]
    is_type = re.fullmatch(r"(?:\w+\.)*[A-Z]\w*|(?!self\.|cls\.)\w+\.[\w.]+", name) or hasattr(builtins, name)
    return [f"{'an' if name[0] in 'aeioAEIO' else 'a'} {_plain(node)}" if is_type else ""]


def _compared(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> str:
    if (
        isinstance(operator, ast.Eq)
        and _is_zero(right)
        and isinstance(left, ast.BinOp)
        and isinstance(left.op, ast.Mod)
    ):
        return f"{_plain(left.left)} must be a multiple of {_plain(left.right)}"
    if isinstance(operator, ast.IsNot) and isinstance(right, ast.Constant) and right.value is None:
        return f"{_plain(left)} must be set"
    if isinstance(right, (ast.List, ast.Tuple, ast.Set)) and isinstance(operator, (ast.In, ast.NotIn)):
        return f"{_plain(left)} {_COMPARED[type(operator)]} {', '.join(map(_plain, right.elts))}"
    if isinstance(operator, ast.In):
        return f"{_plain(left)} must be in {_plain(right)}"
    return f"{_plain(left)} {_COMPARED[type(operator)]} {_plain(right)}"


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _plain(node: ast.expr) -> str:
    """Return an expression as it is written, without `self`."""
    return _OBJECTS.sub("", ast.unparse(node))
