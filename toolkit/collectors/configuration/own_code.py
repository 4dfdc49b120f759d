"""What a user's own file certainly breaks at, when it is imported or when the function that the job names is called."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from verl_doctor.toolkit.sources.python.source import dotted, walk
from verl_doctor.toolkit.sources.python.unbound import unbound

_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEAVE = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_DYNAMIC = re.compile(r"\b(?:exec|eval|globals|setattr|builtins)\b")
_MAY_WRITE = re.compile(r"subprocess|os\.system|download|urlretrieve|copy|[\"'][wax]b?[+\"']|write_")
# Variables that Ray, verl, torch or the shell itself set for workers.
_SET_BY_OTHERS = re.compile(
    r"(?:RAY|CUDA|VLLM|NCCL|VERL|SLURM|MASTER|WORLD|RANK|LOCAL|WG|HF|TOKENIZERS|OMP|TORCH|HYDRA|TRANSFER|PYTHON|LD)(?:_|$)"
)


def breaks(
    tree: ast.Module,
    text: str,
    called: str,
    is_set: Callable[[str], bool],
    is_there: Callable[[str], bool],
) -> Iterator[str]:
    """Yield errors with their lines, as predicates of the file. `called` is the function that the job names, "" for none.

    Only what is reached whatever the values are counts: nothing below a condition, in a loop or in a `try`. `is_set` returns
    whether the job has an environment variable, `is_there` whether a file exists.
    """
    lost = frozenset() if _DYNAMIC.search(text) else unbound(tree, text)
    lost = frozenset(name for name in lost if not name.startswith("__"))
    may_write = _MAY_WRITE.search(text) is not None
    sets_variables = _sets_variables(tree)
    functions = [node for node in tree.body if isinstance(node, _FUNCTIONS) and node.name == called]
    inner = functions[0].body if len(functions) == 1 and not functions[0].decorator_list else []
    for when, body in (("when it is imported", tree.body), (f"in {called}", inner)):
        for statement in _reached(body):
            match statement:
                case ast.Raise(exc=ast.expr() as exc):
                    name = dotted(exc.func if isinstance(exc, ast.Call) else exc)
                    yield f"raises {name or 'an exception'} {when} (line {statement.lineno})"
            for node in _evaluated(statement):
                match node:
                    case ast.Call(func=function) if dotted(function) in _EXITS:
                        yield f"ends the process {when} (line {node.lineno})"
                    case ast.Call(
                        func=ast.Name(id="open"), args=[ast.Constant(value=str(path))], keywords=words
                    ):
                        reads = not may_write and not any(word.arg == "mode" for word in words)
                        if reads and path.startswith("/") and not is_there(path):
                            yield f"opens {path} {when} (line {node.lineno}), and that does not exist"
                    case ast.Subscript(value=owner, slice=ast.Constant(value=str(name)), ctx=ast.Load()):
                        if dotted(owner) == "os.environ" and not (
                            sets_variables or _SET_BY_OTHERS.match(name) or is_set(name)
                        ):
                            yield f"reads os.environ[{name!r}] {when} (line {node.lineno}), and the job does not set it"
                    case ast.Name(id=name, ctx=ast.Load()) if name in lost:
                        yield f"uses {name} {when} (line {node.lineno}), and nothing defines it"


def _sets_variables(tree: ast.Module) -> bool:
    """Return whether a file may set environment variables."""
    for node in walk(tree):
        match node:
            case ast.Subscript(value=owner, ctx=ast.Store()) if dotted(owner) == "os.environ":
                return True
            case ast.Call(func=function) if dotted(function).rpartition(".")[2] in (
                "setdefault", "update", "putenv", "load_dotenv",
            ):  # fmt: skip
                return True
    return False


def _reached(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the simple statements of a block that are always reached, with those in a plain `with`, up to what may leave it."""
    for statement in body:
        match statement:
            case ast.With(items=items, body=inner):
                yield ast.copy_location(ast.Expr(items[0].context_expr), statement)
                names = " ".join(dotted(item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr) for item in items)  # fmt: skip
                if names == "open":
                    yield from _reached(inner)
            case ast.Expr() | ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Return() | ast.Raise():
                yield statement
        leaves = any(isinstance(part, _LEAVE) for part in walk(statement))
        if leaves and not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            return


def _evaluated(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement that are evaluated for certain."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop(0)
        yield node
        match node:
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                continue
            case ast.IfExp(test=test):
                waiting.append(test)
            case ast.BoolOp(values=[first, *_]):
                waiting.append(first)
            case ast.AnnAssign(value=value):
                waiting += [value] if value is not None else []
            case _:
                waiting += ast.iter_child_nodes(node)
