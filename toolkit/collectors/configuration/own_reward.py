"""Definite errors in a user's own reward function: parameters and results with which verl cannot work, and when verl calls it in a thread."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import trains
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.bound import lasting
from verl_doctor.toolkit.sources.python.source import read, walk

# The keyword arguments with which verl's reward managers call a function.
_HANDED = ("data_source", "solution_str", "ground_truth", "extra_info")
_ANSWER = "solution_str"
_TRUTH = "ground_truth"
_OTHER_ANSWERS = ("", "I do not know.")  # which a pattern that finds something in every answer finds too
_MANAGERS = frozenset({"naive", "dapo", "gdpo", "limited", "rate_limited"})
_MANAGER = ("reward.reward_manager.name", "reward_model.reward_manager")
_LET_PASS = frozenset({"naive", "dapo", "gdpo"})
# Since verl 0.7.1, only these managers exist, and each calls a function in a thread.
_LOADER = "trainer/ppo/reward.py"
_LOADED = b"from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls"
_LOOP_MANAGERS = "experimental/reward_loop/reward_manager"
_IN_A_THREAD = re.compile(rb"run_in_executor\(\s*None,\s*lambda: self\.compute_score\(")
_MODELS = ("reward.reward_model.enable", "reward_model.enable")


def scores_rows(configuration: Configuration) -> bool:
    """Return whether one of verl's own reward managers calls the reward function for each row. Programs that evaluate call it themselves."""
    if configuration.own_parts or not trains(configuration):
        return False
    managers = {configuration.get(key) for key in _MANAGER} - {MISSING, None}
    return managers <= _MANAGERS and not any(configuration.get(key) is True for key in _MODELS)


def calls_in_a_thread(configuration: Configuration) -> bool:
    """Return whether verl's reward manager certainly calls a function that is not `async` in a thread of its own, and lets its errors pass."""
    before, inside, _ = configuration.program.rpartition("/verl/")
    managers = {configuration.get(key) for key in _MANAGER} - {MISSING, None} or {"naive"}
    loader = read(Path(before, "verl", _LOADER)) if inside else None
    if not isinstance(loader, bytes) or _LOADED not in loader or not managers <= _LET_PASS:
        return False
    sources = [read(Path(before, "verl", _LOOP_MANAGERS, f"{name}.py")) for name in managers]
    return all(isinstance(source, bytes) and _IN_A_THREAD.search(source) for source in sources)


def reward(configuration: Configuration, section: str, tree: ast.Module) -> Iterator[str]:
    """Check the reward function: parameters that verl passes, and a result with a score."""
    name = configuration.get(f"{section}.name")
    if not scores_rows(configuration):
        return
    function = lasting(tree).get(name) if isinstance(name, str) else None
    more = configuration.get(f"{section}.reward_kwargs")
    handed = [*_HANDED, *(more if isinstance(more, Mapping) else ())]
    if isinstance(function, ast.ClassDef):
        if problem := _constructor(function, handed):
            yield f"defines {name} as a class, which verl calls for each row as it calls a function, and its constructor {problem}"
        return
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or function.decorator_list:
        return
    if problem := _refused(function.args, handed):
        yield f"has a {name} {problem}"
    else:
        yield from _result(function)


def _refused(spec: ast.arguments, handed: Sequence[str]) -> str:
    """Return why parameters cannot be given these keyword arguments; "" if they can."""
    named = [argument.arg for argument in (*spec.args, *spec.kwonlyargs)]
    if spec.posonlyargs:
        return "with positional-only parameters, but verl passes them by name"
    if spec.kwarg is None and (refused := [word for word in handed if word not in named]):
        return f"that does not accept {refused[0]}"
    optional = len(spec.args) - len(spec.defaults)
    needed = [argument.arg for argument in spec.args[:optional]]
    needed += [argument.arg for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is None]  # fmt: skip
    missing = next((word for word in needed if word not in handed), "")
    return f"that requires {missing}, which verl does not pass" if missing else ""


def _constructor(owner: ast.ClassDef, handed: Sequence[str]) -> str:
    """Return why the class of a file, without a base that may have a constructor, refuses a row's values; "" if it may not."""
    methods = {getattr(part, "name", ""): part for part in owner.body}
    plain = all(isinstance(base, ast.Name) and base.id == "object" for base in owner.bases)
    bound = {node.id for part in owner.body if not hasattr(part, "name") for node in walk(part) if isinstance(node, ast.Name)}  # fmt: skip
    if owner.decorator_list or owner.keywords or not plain or "__new__" in methods or "__init__" in bound:
        return ""
    match methods.get("__init__"):
        case None:
            return f"accepts no {handed[0]}" if "__new__" not in bound else ""
        case ast.FunctionDef(decorator_list=[], args=ast.arguments(posonlyargs=[], args=[_, *_]) as spec):
            named = {argument.arg for argument in (*spec.args[1:], *spec.kwonlyargs)}
            refused = next((word for word in handed if word not in named), "")
            return f"accepts no {refused}" if spec.kwarg is None and refused else ""
    return ""


def _result(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Check for a function that never returns a value, or returns dictionaries without a score."""
    returned = [node for node in _own_nodes(function) if isinstance(node, ast.Return)]
    own = list(_own_nodes(function))
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own):
        return
    if all(node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None) for node in returned):  # fmt: skip
        if not any(isinstance(node, ast.Raise) for node in own):
            yield f"defines {function.name}, which returns nothing"
        return
    if test := _nothing_unless(function):
        yield f"defines {function.name}, which returns None unless `{test}` holds, as for an answer in another form"
        return
    kinds = [_no_score(node.value) for node in returned]
    if returned and all(kinds):
        yield f"has a {function.name} that returns {kinds[0]}, but verl expects a number or a dictionary with a score"
        return
    for node in returned:
        match node.value:
            case ast.Dict(keys=keys) if keys and all(isinstance(key, ast.Constant) for key in keys):
                if "score" in {key.value for key in keys if isinstance(key, ast.Constant)}:
                    return
            case _:
                return
    yield f"has a {function.name} that returns a dictionary without score"


def _nothing_unless(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the test of the answer without which the function ends with nothing; "" if there is none, or it may never fail.

    What an earlier return has left over may always pass the test: then nothing is certain.
    """
    given: dict[str, list[ast.expr]] = {}
    for node in _own_nodes(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                given.setdefault(name, []).append(value)
    if _ANSWER in given:
        return ""
    matches = {name for name, values in given.items() if all(map(_searches, values))}
    answers = {_ANSWER} | {name for name, [value] in _alone(given) if _ANSWER in _words(value)}

    def depends(test: ast.expr) -> bool:
        """Whether a test fails for an answer of another form."""
        match test:
            case ast.Name(id=name):
                return name in matches
            case ast.NamedExpr(value=value):
                return _searches(value)
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]
            ):
                return name in matches
            case ast.Compare(left=part, ops=[ast.In()], comparators=[ast.Name(id=name)]):
                return name == _ANSWER and not (isinstance(part, ast.Constant) and not part.value)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]) if _TRUTH not in given:
                answer, truth = sorted((_words(left), _words(right)), key=lambda words: _TRUTH in words)
                return (
                    bool(answer & answers)
                    and _TRUTH in truth
                    and not truth & answers
                    and _TRUTH not in answer
                )
            case ast.Call():
                return _searches(test)
        return False

    def end(body: Sequence[ast.stmt]) -> str:
        """The test at the end of a body whose failure leads past it."""
        for statement in body[:-1]:
            if isinstance(statement, ast.If) and not statement.orelse and (found := absent(statement)):
                return found
            if any(isinstance(node, ast.Return) for node in (statement, *_own_nodes(statement))):
                return ""
        last = body[-1]
        if isinstance(last, ast.Try) and not last.orelse and not last.finalbody:
            return end(last.body)
        return end_of_if(last) if isinstance(last, ast.If) else ""

    def end_of_if(last: ast.If) -> str:
        if not depends(last.test):
            return absent(last) if not last.orelse else ""
        if not last.orelse:
            return ast.unparse(last.test) if isinstance(last.body[-1], ast.Return) else ""
        return (
            end_of_if(last.orelse[0]) if len(last.orelse) == 1 and isinstance(last.orelse[0], ast.If) else ""
        )

    def absent(statement: ast.If) -> str:
        """The match that `if not match: return None` tests."""
        match statement.test:
            case ast.UnaryOp(op=ast.Not(), operand=operand) if depends(operand):
                found = ast.unparse(operand)
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(value=None)]
            ) if name in matches:
                found = name
            case _:
                return ""
        match statement.body[-1]:
            case ast.Return(value=None) | ast.Return(value=ast.Constant(value=None)):
                return found
        return ""

    return end(function.body)


def _alone(given: Mapping[str, list[ast.expr]]) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield the names that one statement assigns, with the value."""
    yield from ((name, values) for name, values in given.items() if len(values) == 1)


def _words(value: ast.AST) -> set[str]:
    return {node.id for node in walk(value) if isinstance(node, ast.Name)}


def _searches(value: ast.expr) -> bool:
    """Return whether an expression is a match of an answer with a pattern, which some answers do not have."""
    match value:
        case ast.Call(
            func=ast.Attribute(attr="search" | "match" | "fullmatch"),
            args=[ast.Constant(value=str(pattern)), text, *_],
        ):
            try:
                form = re.compile(pattern, re.DOTALL | re.IGNORECASE | re.MULTILINE)
            except re.error:
                return False
            names = {node.id for node in walk(text) if isinstance(node, ast.Name)}
            return _ANSWER in names and not any(map(form.search, _OTHER_ANSWERS))
    return False


def _no_score(value: ast.expr | None) -> str:
    """What a `return` yields if that is certainly no score; "" otherwise."""
    match value:
        case ast.Tuple():
            return "a tuple"
        case ast.List() | ast.ListComp():
            return "a list"
        case ast.JoinedStr() | ast.Constant(value=str()):
            return "text"
    return ""


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of nested functions."""
    waiting = list(ast.iter_child_nodes(function))
    for node in waiting:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
