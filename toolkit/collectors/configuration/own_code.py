"""Errors that a user's own file is certain to raise when imported or when the job's function is called."""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from verl_doctor.toolkit.sources.python.bound import lasting, names_bound
from verl_doctor.toolkit.sources.python.source import dotted, walk
from verl_doctor.toolkit.sources.python.unbound import unbound
from verl_doctor.toolkit.sources.shell.set_by_others import is_set_by_others

_EXITS = frozenset({"sys.exit", "exit", "quit", "os._exit"})
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LEAVE = (ast.Return, ast.Raise, ast.Continue, ast.Break)
YIELDS = (ast.Yield, ast.YieldFrom)
# Methods that change nothing of their object, and functions that change nothing of their arguments.
_LOOKS = frozenset(
    {name for kind in (str, int, float, tuple) for name in dir(kind)}
    | {"get", "keys", "values", "items", "copy", "tolist", "item"}
)
_LEAVES_AS_IS = frozenset(
    {
        "abs",
        "bool",
        "dict",
        "float",
        "int",
        "isinstance",
        "json.dumps",
        "json.loads",
        "len",
        "list",
        "print",
        "repr",
        "round",
        "set",
        "sorted",
        "str",
        "tuple",
        "type",
        "hasattr",
        "getattr",
        "max",
        "min",
        "sum",
        "any",
        "all",
    }
)
# Modules that set no variables and make no files when they are imported, besides those of the standard
# library.
_NEUTRAL = sys.stdlib_module_names | {
    "torch",
    "numpy",
    "pandas",
    "transformers",
    "datasets",
    "ray",
    "verl",
    "vllm",
    "sympy",
    "requests",
    "httpx",
    "aiohttp",
    "openai",
}
# Names may be made where no statement binds them.
_DYNAMIC = re.compile(
    r"\b(?:exec|eval|globals|locals|vars|setattr|builtins|__builtins__|__dict__|__setattr__|modules"
    r"|_getframe|ctypes|install)\b"
)
# A module that has a package may import from it, and so may one that imports with functions.
_HAS_PACKAGE = re.compile(
    r"__package__|__path__|__spec__|__name__[\"'\]\s]*=[^=]|\b(?:importlib|modules|meta_path|path_hooks"
    r"|runpy|exec)\b"
)
_MAY_WRITE = re.compile(r"subprocess|os\.system|download|urlretrieve|copy|[\"'][wax]b?[+\"']|write_")
# Variables that verl, vLLM, torch or Python's launchers set for workers, besides those that schedulers and
# Ray set.
_SET_FOR_WORKERS = re.compile(r"(?:VLLM|NCCL|VERL|WG|HF|TOKENIZERS|OMP|TORCH|TRANSFER|PYTHON)(?:_|$)")


def breaks(
    tree: ast.Module,
    text: str,
    called: str,
    is_set: Callable[[str], bool],
    is_there: Callable[[str], bool],
) -> Iterator[str]:
    """Yield errors with their lines, as predicates of the file.

    `called` is the function that the job names, "" for none.

    Only what is reached whatever the values are counts: nothing below a condition, in a loop or in a `try`.
    `is_set` returns whether the job has an environment variable, `is_there` whether a file exists. Neither
    counts where the file or a module of the user's own that it imports may set or make it.
    """
    lost = frozenset() if _DYNAMIC.search(text) else unbound(tree, text)
    own = frozenset(names_bound(tree))
    prepared = imports_more(tree)
    judge = _Judge(
        lost=frozenset(name for name in lost if not name.startswith("__")),
        exits=frozenset(name for name in _EXITS if name.partition(".")[0] not in own - {"sys", "os"}),
        opens=not (prepared or _MAY_WRITE.search(text) or "open" in own),
        variables=not (prepared or _sets_variables(tree)),
        is_set=is_set,
        is_there=is_there,
    )
    functions = {
        name: node
        for name, node in lasting(tree).items()
        if isinstance(node, FUNCTIONS) and not node.decorator_list
    }
    inner = functions[called].body if called in functions else []
    if any(isinstance(node, YIELDS) for statement in inner for node in walk(statement)):
        inner = []  # calling a generator runs nothing
    for statement in itertools.takewhile(
        lambda node: not may_leave(node), tree.body if called and not _HAS_PACKAGE.search(text) else ()
    ):
        if isinstance(statement, ast.ImportFrom) and statement.level:
            yield (
                f"imports from its own package with a dot (line {statement.lineno}), but verl loads the "
                "file alone, without a package"
            )
            return
    further = followed(functions, inner)
    for when, body in (("when it is imported", tree.body), (f"in {called}", inner), *further):
        for statement in reached(body):
            if isinstance(statement, ast.Raise) and statement.exc is not None:
                raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
                yield f"raises {dotted(raised) or 'an exception'} {when} (line {statement.lineno})"
            for node in evaluated(statement):
                if isinstance(node, ast.expr) and (found := judge.found(node)):
                    error, reason = found
                    yield f"{error} {when} (line {node.lineno}){reason}"


@dataclass(frozen=True)
class Read:
    """What a function surely reads of a parameter: item `parameter["name"]` or attribute `parameter.name`."""

    parameter: str
    name: str
    line: int
    is_item: bool


def reads(function: ast.AST | None, looking: frozenset[str] = frozenset()) -> Iterator[Read]:
    """Yield what a function reads of its parameters whatever their values are.

    Reading stops at the first statement that may end the function.

    What a parameter has is unknown from the line on that may change it: that stores into it, calls a method
    of it that is not known only to look, or passes it on to a function. Those named in `looking` change
    nothing.
    """
    if not isinstance(function, FUNCTIONS) or function.decorator_list:
        return
    nodes = list(walk(function))
    if any(isinstance(node, YIELDS) for node in nodes):
        return  # calling a generator runs nothing
    spec = function.args
    parameters = {argument.arg for argument in (*spec.args, *spec.kwonlyargs)}
    parameters -= {
        node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    parameters -= {name for node in nodes for name in _bound_otherwise(node)}
    changed = _first_changes(nodes, looking)
    for statement in reached(function.body):
        for node in evaluated(statement):
            match node:
                case ast.Subscript(
                    value=ast.Name(id=owner), slice=ast.Constant(value=str(name)), ctx=ast.Load()
                ):
                    is_item = True
                case ast.Attribute(value=ast.Name(id=owner), attr=name, ctx=ast.Load()):
                    is_item = False
                case _:
                    continue
            if owner in parameters and node.lineno < changed.get(owner, node.lineno + 1):
                yield Read(owner, name, node.lineno, is_item)


def _bound_otherwise(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds without a `Name`.

    They come from patterns, imports, handlers, and nested functions with their parameters.
    """
    match node:
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]
        case ast.ExceptHandler(name=str(name)) | ast.ClassDef(name=name):
            yield name


def _first_changes(nodes: Sequence[ast.AST], looking: frozenset[str]) -> Mapping[str, int]:
    """Return for each name the first line that may change its items, also by another name that it gets."""
    found: list[tuple[str, int]] = []
    others: list[tuple[str, str]] = []
    for node in nodes:
        match node:
            case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del(), lineno=line):
                found.append((dotted(owner), line))
            case ast.Call(func=function, args=arguments, keywords=words, lineno=line):
                if isinstance(function, ast.Attribute) and function.attr not in _LOOKS:
                    found.append((dotted(function.value), line))
                if ast.unparse(function) not in _LEAVES_AS_IS | looking:
                    given = (*arguments, *(word.value for word in words))
                    parts = (part.value if isinstance(part, ast.Starred) else part for part in given)
                    found += ((dotted(part), line) for part in parts)
            case ast.Assign(targets=targets, value=ast.Name(id=name)):
                others += ((dotted(target), name) for target in targets)
            case ast.NamedExpr(target=target, value=ast.Name(id=name)):
                others.append((target.id, name))
    lines: dict[str, int] = {}
    for changed, line in sorted(found, key=lambda change: change[1]):
        lines.setdefault(changed, line)
        for other, name in others:
            if f"{changed}.".startswith(f"{other}.") or f"{other}.".startswith(f"{changed}."):
                lines.setdefault(name, line)
    return lines


def followed(
    functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef], body: Sequence[ast.stmt]
) -> Iterator[tuple[str, Sequence[ast.stmt]]]:
    """Yield the bodies of the file's own functions that a body's statements certainly call, each once."""
    left = {
        name: node
        for name, node in functions.items()
        if isinstance(node, ast.FunctionDef) and not any(isinstance(part, YIELDS) for part in walk(node))
    }
    waiting = [body]
    for block in waiting:
        for statement in reached(block):
            for part in evaluated(statement):
                name = dotted(part.func) if isinstance(part, ast.Call) else ""
                if function := left.pop(name, None):
                    waiting.append(function.body)
                    yield f"in {name}", function.body


@dataclass(frozen=True)
class _Judge:
    """Judges single expressions.

    `opens` and `variables`: whether files and variables that are not there count.
    """

    lost: frozenset[str]
    exits: frozenset[str]
    opens: bool
    variables: bool
    is_set: Callable[[str], bool]
    is_there: Callable[[str], bool]

    def found(self, node: ast.expr) -> tuple[str, str] | None:
        """Return the error and its reason."""
        match node:
            case ast.Call(func=function) if dotted(function) in self.exits:
                return "ends the process", ""
            case ast.Call(func=ast.Name(id="open"), args=[ast.Constant(value=str(path))], keywords=words):
                reads = all(word.arg != "mode" for word in words)
                if self.opens and reads and path.startswith("/") and not self.is_there(path):
                    return f"opens {path}", ", and that does not exist"
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(name)), ctx=ast.Load()):
                known = _SET_FOR_WORKERS.match(name) or is_set_by_others(name) or self.is_set(name)
                if self.variables and dotted(owner) == "os.environ" and not known:
                    return f"reads os.environ[{name!r}]", ", and the job does not set it"
            case ast.Name(id=name, ctx=ast.Load()) if name in self.lost:
                return f"uses {name}", ", and nothing defines it"
        return None


def imports_more(tree: ast.Module) -> bool:
    """Return whether a file imports modules that may do anything: neither standard nor well-known ones."""
    return any(name not in _NEUTRAL for name in _imported(tree))


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the first names of all imported modules, "" for the file's own package."""
    for node in walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "" if node.level else (node.module or "").partition(".")[0]


def _sets_variables(tree: ast.Module) -> bool:
    """Return whether a file may set environment variables."""
    for node in walk(tree):
        match node:
            case ast.Subscript(value=owner, ctx=ast.Store()) if dotted(owner).endswith("environ"):
                return True
            case ast.AugAssign(target=target) if dotted(target).endswith("environ"):
                return True
            case ast.Call(func=function) if dotted(function).rpartition(".")[2] in (
                "setdefault",
                "update",
                "putenv",
                "load_dotenv",
            ):
                return True
    return False


def reached(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the simple statements of a block that are always reached.

    Those in a plain `with` are included, and those after one that may leave the block are not.
    """
    for statement in body:
        match statement:
            case ast.With(items=items, body=inner):
                yield ast.copy_location(ast.Expr(items[0].context_expr), statement)
                names = " ".join(
                    dotted(
                        item.context_expr.func
                        if isinstance(item.context_expr, ast.Call)
                        else item.context_expr
                    )
                    for item in items
                )
                if names == "open":
                    yield from reached(inner)
            case ast.Expr() | ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Return() | ast.Raise():
                yield statement
        if may_leave(statement):
            return


def may_leave(statement: ast.stmt) -> bool:
    """Return whether a statement may end its block, or the process."""
    leaves = any(
        isinstance(part, _LEAVE) or (isinstance(part, ast.Call) and dotted(part.func) in _EXITS)
        for part in walk(statement)
    )
    return leaves and not isinstance(statement, (*FUNCTIONS, ast.ClassDef))


def evaluated(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield the expressions of a statement that are evaluated for certain."""
    waiting: list[ast.AST] = [statement]
    for node in waiting:
        yield node
        match node:
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                continue
            case ast.IfExp(test=test):
                waiting.append(test)
            case ast.BoolOp(values=[first, *_]):
                waiting.append(first)
            case ast.Compare(left=left, comparators=[first, *_]):
                waiting += [left, first]
            case ast.AnnAssign(value=value):
                waiting += [value] if value is not None else []
            case _:
                waiting += ast.iter_child_nodes(node)
