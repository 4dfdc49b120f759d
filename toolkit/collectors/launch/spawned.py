"""The command that a Python program of the user's own starts.

An example is `subprocess.run(["torchrun", ..., *sys.argv[1:]])`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from verl_doctor.toolkit.sources.python.certain_steps import bindings, steps_to
from verl_doctor.toolkit.sources.python.source import imported_names, walk, whole_name
from verl_doctor.toolkit.sources.shell.found import Argument

_STARTS = re.compile(
    r"subprocess\.(?:run|call|check_call|check_output|Popen)|os\.(?:exec|spawn|posix_spawn)\w*|os\.system"
)
_LIKE_ARGUMENTS = re.compile(r"subprocess\.\w+|os\.execvp?e?|os\.system")
_BY_NAME = re.compile(r"os\.execvp?e?")
_BEGINS = re.compile(r"\b(?:subprocess|os)\b")
# What the started program would get in another way than this one: its folder, its variables.
_OTHERWISE = frozenset({"cwd", "env", "executable", "preexec_fn"})
_CHANGES = frozenset({"chdir", "fchdir", "putenv", "unsetenv", "load_dotenv"})
_INDIRECT = frozenset({"globals", "locals", "vars", "exec", "eval", "setattr"})
_GROWS = frozenset({"append", "extend"})
# What only reads a list, the arguments or the variables.
_READING_CALLS = frozenset({"print", "len", "str", "dict", "list", "tuple", "sorted", "shlex.join"})
_READING_METHODS = frozenset({"get", "copy", "keys", "values", "items", "index", "count"})
_READING_PARENTS = (ast.Starred, ast.FormattedValue, ast.BinOp, ast.Compare, ast.Dict, ast.comprehension)
_ARGUMENTS, _VARIABLES, _INTERPRETER = "sys.argv", "os.environ", "sys.executable"
_DEEPEST = 4


def spawned(text: str, given: Sequence[Argument], first: Argument) -> list[Argument] | None:
    """Return the words of the only command that the text starts.

    The result is None if it may start none or several, or in a way that is not followed.

    `given` are its own arguments, `first` is the place of the text's first line. What cannot be determined is
    an unknown word.
    """
    if _BEGINS.search(text) is None:
        return None
    try:
        return _spawned(ast.parse(text), given, first)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _spawned(tree: ast.Module, given: Sequence[Argument], first: Argument) -> list[Argument] | None:
    imported = imported_names(tree)
    calls = list(_calls(tree, imported))
    if len(calls) != 1 or "*" in imported or _changes_what_it_gets(tree, imported):
        return None
    call, name = calls[0]
    if not call.args or any(keyword.arg is None or keyword.arg in _OTHERWISE for keyword in call.keywords):
        return None
    steps = steps_to(call, tree) if _LIKE_ARGUMENTS.fullmatch(name) else None
    if steps is None:
        return None
    reader = _Reader(tree, steps, call, imported)
    reader.given, reader.first = given, first
    command = call.args[1] if _BY_NAME.fullmatch(name) and len(call.args) > 1 else call.args[0]
    is_text = name == "os.system" or any(
        keyword.arg == "shell" and not _is_false(keyword.value) for keyword in call.keywords
    )
    if is_text:
        line = reader.text(command)
        return None if line is None else [reader.word(command, text) for text in ("bash", "-c", line)]
    words = reader.words(command)
    return words if words and words[0].text is not None else None


def _calls(tree: ast.Module, imported: Mapping[str, str]) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that start a program, with the function's whole name."""
    for node in walk(tree):
        if isinstance(node, ast.Call) and _STARTS.fullmatch(name := whole_name(node.func, imported)):
            yield node, name


def _changes_what_it_gets(tree: ast.Module, imported: Mapping[str, str]) -> bool:
    """Return whether the text may change the folder, variables or arguments that the program inherits."""
    for node in walk(tree):
        if isinstance(node, ast.Call):
            name = whole_name(node.func, imported)
            if name in _INDIRECT or name.rpartition(".")[2] in _CHANGES:
                return True
        for part in ast.iter_child_nodes(node):
            if whole_name(part, imported) in (_ARGUMENTS, _VARIABLES) and not _only_reads(
                node, part, imported
            ):
                return True
    return False


def _only_reads(parent: ast.AST, node: ast.AST, imported: Mapping[str, str]) -> bool:
    """Return whether an expression uses a list or mapping without changing it or giving it another name."""
    if isinstance(parent, ast.Subscript):
        return isinstance(parent.ctx, ast.Load)
    if isinstance(parent, ast.Attribute):
        return parent.attr in _READING_METHODS
    if isinstance(parent, ast.Call):
        name = whole_name(parent.func, imported)
        joins = isinstance(parent.func, ast.Attribute) and parent.func.attr == "join"
        return node is not parent.func and (joins or name in _READING_CALLS)
    return isinstance(parent, _READING_PARENTS) or (isinstance(parent, ast.For) and node is parent.iter)


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


class _Reader:
    """Reads expressions as words.

    A name has the words of all statements that set it or make it longer, in the order in which they run.

    A name that is also bound in another way, as a parameter or by a loop, or whose list may be changed
    elsewhere, is unknown.
    """

    given: Sequence[Argument]
    first: Argument

    def __init__(
        self,
        tree: ast.Module,
        steps: Sequence[tuple[ast.stmt, bool]],
        call: ast.Call,
        imported: Mapping[str, str],
    ) -> None:
        self.imported = imported
        self.set: dict[str, list[tuple[int, ast.stmt, bool]]] = {}
        ran = {id(node) for node, _ in steps}
        others = [node for node in walk(tree) if isinstance(node, ast.stmt) and id(node) not in ran]
        for place, (node, sure) in enumerate([*((node, False) for node in others), *steps], -len(others)):
            if name := _changed(node):
                self.set.setdefault(name, []).append((place, node, sure))
        bound = bindings(tree)
        for name, found in self.set.items():
            bound[name] -= len({id(node) for _, node, _ in found if not isinstance(node, ast.Expr)})
        self.unclear = {name for name, count in bound.items() if count}
        grown = {
            id(node.value.func.value)
            for found in self.set.values()
            for _, node, _ in found
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            if isinstance(node.value.func, ast.Attribute)
        }
        self.shared = {
            part.id
            for node in walk(tree)
            for part in ast.iter_child_nodes(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and id(part) not in grown
            if node is not call and not _only_reads(node, part, imported)
        }

    def words(self, node: ast.expr, before: float = float("inf"), depth: int = 0) -> list[Argument]:
        """Return the words of a list, as it is `before` a step.

        An unknown word stands for what may be several or none.
        """
        if depth > _DEEPEST:
            return [self.word(node, None)]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [word for part in node.elts for word in self._element(part, before, depth)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [*self.words(node.left, before, depth + 1), *self.words(node.right, before, depth + 1)]
        if isinstance(node, ast.Name) and node.id in self.set:
            return self._named(node, before, depth)
        if self._is_rest(node):
            return list(self.given)
        return [self.word(node, None)]

    def _is_rest(self, node: ast.expr) -> bool:
        """Return whether an expression is `sys.argv[1:]`."""
        if not isinstance(node, ast.Subscript) or whole_name(node.value, self.imported) != _ARGUMENTS:
            return False
        part = node.slice
        starts = (
            isinstance(part, ast.Slice) and isinstance(part.lower, ast.Constant) and part.lower.value == 1
        )
        return starts and isinstance(part, ast.Slice) and part.upper is None and part.step is None

    def _named(self, node: ast.Name, before: float, depth: int) -> list[Argument]:
        found: list[Argument] = []
        steps = [step for step in self.set[node.id] if step[0] < before]
        if node.id in self.unclear or node.id in self.shared:
            return [self.word(node, None)]
        for place, statement, sure in sorted(steps, key=lambda step: (step[0] < 0, step[0])):
            if isinstance(statement, _SETS) and statement.value is not None:
                if not sure or found:  # it may be another list
                    return [self.word(node, None)]
                found = self.words(statement.value, place, depth + 1)
            elif isinstance(statement, ast.AugAssign):
                found += self._more(self.words(statement.value, place, depth + 1), sure=sure)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                call = statement.value
                appends = isinstance(call.func, ast.Attribute) and call.func.attr == "append"
                found += self._more(
                    [self._single(call.args[0])] if appends else self.words(call.args[0], place, depth + 1),
                    sure=sure,
                )
        return found

    def _more(self, words: list[Argument], *, sure: bool) -> list[Argument]:
        return words if sure else [replace(word, text=None, conditional=True) for word in words]

    def _element(self, node: ast.expr, before: float, depth: int) -> list[Argument]:
        if isinstance(node, ast.Starred):
            return self.words(node.value, before, depth + 1)
        return [self._single(node)]

    def _single(self, node: ast.expr) -> Argument:
        return self.word(node, self.text(node))

    def text(self, node: ast.expr, depth: int = 0) -> str | None:
        """Return the text that an expression stands for; None if it cannot be determined."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if whole_name(node, self.imported) == _INTERPRETER:
            return "python"
        if isinstance(node, ast.JoinedStr):
            parts = [
                self.text(part.value, depth + 1)
                if isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
                else self.text(part, depth + 1)
                for part in node.values
            ]
            return "".join(part for part in parts if part is not None) if None not in parts else None
        if isinstance(node, ast.Name) and depth <= _DEEPEST and node.id not in self.unclear:
            found = self.set.get(node.id, [])
            _, statement, sure = found[0] if len(found) == 1 else (0, None, False)
            if sure and isinstance(statement, _SETS) and statement.value is not None:
                return self.text(statement.value, depth + 1)
        return None

    def word(self, node: ast.expr, text: str | None) -> Argument:
        """Return the word for an expression, at its place."""
        line = self.first.line + node.lineno - 1
        return Argument(text, self.first.path, line, text if text is not None else ast.unparse(node))


_SETS = (ast.Assign, ast.AnnAssign)


def _changed(node: ast.stmt) -> str:
    """Return the name that a statement sets or makes longer.

    The result is "" if it does neither, or does so to several names or in another way.
    """
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target: ast.expr = node.targets[0]
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        target = node.target
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        grows = isinstance(call.func, ast.Attribute) and call.func.attr in _GROWS
        if not grows or len(call.args) != 1 or call.keywords or not isinstance(call.func, ast.Attribute):
            return ""
        target = call.func.value
    else:
        return ""
    return target.id if isinstance(target, ast.Name) else ""
