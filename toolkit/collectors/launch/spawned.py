"""The command that a Python program of the user's own starts: `subprocess.run(["torchrun", ..., *sys.argv[1:]])`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from verl_doctor.toolkit.sources.python.source import dotted
from verl_doctor.toolkit.sources.shell.walk import Argument

_STARTS = re.compile(r"subprocess\.(?:run|call|check_call|check_output|Popen)|os\.execvp?e?|os\.system")
_BY_NAME = re.compile(r"os\.execvp?e?")
_BEGINS = re.compile(r"\b(?:subprocess|os)\b")
# What the started program would get in another way than this one: its folder, its variables.
_OTHERWISE = frozenset({"cwd", "env", "executable"})
_CHANGES = frozenset(
    {
        "os.chdir",
        "os.putenv",
        "os.unsetenv",
        "os.environ.update",
        "os.environ.setdefault",
        "os.environ.pop",
        "load_dotenv",
    }
)
_GROWS = frozenset({"append", "extend"})
_ARGUMENTS, _INTERPRETER, _REST = "sys.argv", "sys.executable", "sys.argv[1:]"
_DEEPEST = 4


def spawned(text: str, given: Sequence[Argument], first: Argument) -> list[Argument] | None:
    """Return the words of the only command that the text starts; None if it starts none or several, or in a way that is not followed.

    `given` are its own arguments, `first` is the place of the text's first line. What cannot be determined is an unknown word.
    """
    if _BEGINS.search(text) is None:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    calls = list(_calls(tree))
    if len(calls) != 1 or _changes_what_it_gets(tree):
        return None
    call, name = calls[0]
    if not call.args or any(keyword.arg is None or keyword.arg in _OTHERWISE for keyword in call.keywords):
        return None
    reader = _Reader(tree, given, first)
    command = call.args[1] if _BY_NAME.fullmatch(name) and len(call.args) > 1 else call.args[0]
    is_text = name == "os.system" or any(
        keyword.arg == "shell" and not _is_false(keyword.value) for keyword in call.keywords
    )
    if is_text:
        line = reader.text(command)
        return None if line is None else [reader.word(command, text) for text in ("bash", "-c", line)]
    words = reader.words(command)
    return words if words and words[0].text is not None else None


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that start a program, with the function's whole name."""
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        if isinstance(node, ast.ImportFrom)
        else alias.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name, dot, rest = dotted(node.func).partition(".")
            whole = imported.get(name, name) + dot + rest
            if _STARTS.fullmatch(whole):
                yield node, whole


def _changes_what_it_gets(tree: ast.Module) -> bool:
    """Return whether the text changes its folder, its variables or its arguments, which the started program inherits."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in _CHANGES:
            return True
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AugAssign)
            else []
        )
        places = [target.value if isinstance(target, ast.Subscript) else target for target in targets]
        if any(dotted(place) in ("os.environ", _ARGUMENTS) for place in places):
            return True
    return False


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


class _Reader:
    """Reads expressions as words. A name has the words of all statements that set it or make it longer, in the order of the text."""

    def __init__(self, tree: ast.Module, given: Sequence[Argument], first: Argument) -> None:
        self.given, self.first = given, first
        self.set: dict[str, list[tuple[ast.stmt, bool]]] = {}
        self.used: dict[str, int] = {}
        self._statements(tree.body, sure=True)

    def _statements(self, body: Sequence[ast.stmt], *, sure: bool) -> None:
        for node in body:
            name = _changed(node)
            if name:
                self.set.setdefault(name, []).append((node, sure))
            plain = isinstance(node, (ast.FunctionDef, ast.With, ast.Try))
            is_main = isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
            for inner in ("body", "orelse", "finalbody", "handlers"):
                nested = getattr(node, inner, [])
                self._statements(
                    [part for part in nested if isinstance(part, ast.stmt)], sure=sure and (plain or is_main)
                )

    def words(self, node: ast.expr, depth: int = 0) -> list[Argument]:
        """Return the words of a list; an unknown one for what may be several or none."""
        if depth > _DEEPEST:
            return [self.word(node, None)]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [word for part in node.elts for word in self._element(part, depth)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [*self.words(node.left, depth + 1), *self.words(node.right, depth + 1)]
        if isinstance(node, ast.Name) and node.id in self.set:
            return self._named(node, depth)
        if ast.unparse(node) == _REST:
            return list(self.given)
        return [self.word(node, None)]

    def _named(self, node: ast.Name, depth: int) -> list[Argument]:
        found: list[Argument] = []
        for statement, sure in self.set[node.id]:
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                if not sure or found or _is_part(statement):  # it may be another list
                    return [self.word(node, None)]
                found = self.words(statement.value, depth + 1)
            elif isinstance(statement, ast.AugAssign):
                found += self._more(self.words(statement.value, depth + 1), sure=sure)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                call = statement.value
                grows = (
                    isinstance(call.func, ast.Attribute) and call.func.attr in _GROWS and len(call.args) == 1
                )
                if not grows:
                    return [self.word(node, None)]
                appends = isinstance(call.func, ast.Attribute) and call.func.attr == "append"
                found += self._more(
                    [self._single(call.args[0])] if appends else self.words(call.args[0], depth + 1),
                    sure=sure,
                )
        return found

    def _more(self, words: list[Argument], *, sure: bool) -> list[Argument]:
        return words if sure else [replace(word, text=None, conditional=True) for word in words]

    def _element(self, node: ast.expr, depth: int) -> list[Argument]:
        if isinstance(node, ast.Starred):
            return self.words(node.value, depth + 1)
        return [self._single(node)]

    def _single(self, node: ast.expr) -> Argument:
        return self.word(node, self.text(node))

    def text(self, node: ast.expr, depth: int = 0) -> str | None:
        """Return the text that an expression stands for; None if it cannot be determined."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if ast.unparse(node) == _INTERPRETER:
            return "python"
        if isinstance(node, ast.JoinedStr):
            parts = [
                self.text(part.value, depth + 1)
                if isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
                else self.text(part, depth + 1)
                for part in node.values
            ]
            return "".join(part for part in parts if part is not None) if None not in parts else None
        if isinstance(node, ast.Name) and depth <= _DEEPEST:
            found = self.set.get(node.id, [])
            statement, sure = found[0] if len(found) == 1 else (None, False)
            if sure and isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                return self.text(statement.value, depth + 1)
        return None

    def word(self, node: ast.expr, text: str | None) -> Argument:
        """Return the word for an expression, at its place."""
        line = self.first.line + node.lineno - 1
        return Argument(text, self.first.path, line, text if text is not None else ast.unparse(node))


def _is_part(node: ast.Assign | ast.AnnAssign) -> bool:
    """Return whether only a part of the name's value is set."""
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript)


def _changed(node: ast.stmt) -> str:
    """Return the name that a statement sets or changes; "" without one."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        return dotted(target.value if isinstance(target, ast.Subscript) else target)
    if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        return dotted(node.target)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return dotted(node.value.func).rpartition(".")[0]
    return ""
