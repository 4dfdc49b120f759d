"""Definite errors in a user's own reward function: parameters and results with which verl cannot work.

It also covers when verl calls the function in a thread.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import trains, validates
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.pattern import is_quick, lacks
from verl_doctor.toolkit.sources.python.bound import lasting, names_bound
from verl_doctor.toolkit.sources.python.source import dotted, read, walk

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
_AGENT_LOOP, _STORES = "experimental/agent_loop/agent_loop.py", b"rm_scores[-1] = reward_score"
_NUMBERS = frozenset({("fractions", "Fraction"), ("decimal", "Decimal")})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MODELS = ("reward.reward_model.enable", "reward_model.enable")


def scores_rows(configuration: Configuration) -> bool:
    """Return whether one of verl's own reward managers calls the reward function for each row.

    Programs that evaluate call it themselves.
    """
    if configuration.own_parts or not trains(configuration):
        return False
    managers = {configuration.get(key) for key in _MANAGER} - {MISSING, None}
    return managers <= _MANAGERS and not any(configuration.get(key) is True for key in _MODELS)


def calls_in_a_thread(configuration: Configuration) -> bool:
    """Return whether verl's reward manager certainly calls a function in a thread of its own.

    The function is not `async`, and the manager lets its errors pass.
    """
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
            yield (
                f"defines {name} as a class, which verl calls for each row as it calls a function, and its "
                f"constructor {problem}"
            )
        return
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) or function.decorator_list:
        return
    if problem := refused_arguments(function.args, handed):
        yield f"has a {name} {problem}"
    else:
        yield from _result(function, _Results(tree, function, takes_floats=_takes_floats(configuration)))


def details(configuration: Configuration, section: str, tree: ast.Module) -> Iterator[str]:
    """Check the further values beside a score: a validation takes the mean of each that is no text."""
    name = configuration.get(f"{section}.name")
    function = lasting(tree).get(name) if isinstance(name, str) else None
    if not scores_rows(configuration) or not validates(configuration) or not isinstance(function, _FUNCTIONS):
        return
    returned = [node.value for node in _own_nodes(function) if isinstance(node, ast.Return)]
    if function.decorator_list or not returned:
        return
    results = _Results(tree, function, takes_floats=False)
    found = [_mapping_in(results.resolved(value)) for value in returned]
    if all(found):
        yield (
            f"has a {name} whose result has a dictionary under {found[0]!r}, and a validation takes the "
            "mean of every value"
        )


def _mapping_in(value: ast.expr | None) -> str:
    """Return the name of a returned dictionary's entry that is itself a dictionary; "" if there is none."""
    entries = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
    for key, entry in entries:
        match key:
            case ast.Constant(value=str(name)) if name != "score" and isinstance(
                entry, (ast.Dict, ast.DictComp)
            ):
                return name
    return ""


def _takes_floats(configuration: Configuration) -> bool:
    """Return whether a row's score is stored into a tensor, which takes no numbers but Python's own."""
    before, inside, _ = configuration.program.rpartition("/verl/")
    source = read(Path(before, "verl", _AGENT_LOOP)) if inside else None
    is_new = configuration.get("trainer.use_v1") is True and calls_in_a_thread(configuration)
    return is_new and isinstance(source, bytes) and _STORES in source


def refused_arguments(spec: ast.arguments, handed: Sequence[str]) -> str:
    """Return why parameters cannot be given these keyword arguments; "" if they can."""
    named = [argument.arg for argument in (*spec.args, *spec.kwonlyargs)]
    if spec.posonlyargs:
        return "with positional-only parameters, but verl passes them by name"
    if spec.kwarg is None and (refused := [word for word in handed if word not in named]):
        return f"that does not accept {refused[0]}"
    optional = len(spec.args) - len(spec.defaults)
    needed = [argument.arg for argument in spec.args[:optional]]
    needed += [
        argument.arg
        for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
        if default is None
    ]
    missing = next((word for word in needed if word not in handed), "")
    return f"that requires {missing}, which verl does not pass" if missing else ""


def _constructor(owner: ast.ClassDef, handed: Sequence[str]) -> str:
    """Return why the class of a file refuses a row's values; "" if it may not.

    The class has no base that may have a constructor.
    """
    methods = {getattr(part, "name", ""): part for part in owner.body}
    plain = all(isinstance(base, ast.Name) and base.id == "object" for base in owner.bases)
    bound = {
        node.id
        for part in owner.body
        if not hasattr(part, "name")
        for node in walk(part)
        if isinstance(node, ast.Name)
    }
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


@dataclass(frozen=True)
class _Results:
    """What a function of a file returns.

    `takes_floats`: a score must be one of Python's or numpy's numbers.
    """

    tree: ast.Module
    function: ast.FunctionDef | ast.AsyncFunctionDef
    takes_floats: bool

    def resolved(self, value: ast.expr | None) -> ast.expr | None:
        """Return the value of a name bound once and used nowhere else; any other expression as it is."""
        if not isinstance(value, ast.Name) or Counter(names_bound(self.function))[value.id] != 1:
            return value
        if sum(isinstance(node, ast.Name) and node.id == value.id for node in walk(self.function)) != 2:
            return value
        for statement in self.function.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=given) if name == value.id:
                    return given
        return value

    def no_score(self, value: ast.expr | None) -> str:
        """What a `return` yields if that is certainly no score; "" otherwise."""
        value = self.resolved(value)
        match value:
            case ast.Tuple():
                return "a tuple"
            case ast.List() | ast.ListComp():
                return "a list"
            case ast.JoinedStr() | ast.Constant(value=str()):
                return "text"
            case ast.Call(func=ast.Name(id=name)) if self._is_awaitable(name):
                return f"the coroutine of {name} without awaiting it"
            case ast.Call(func=function) if self.takes_floats and (kind := self._number(function)):
                return f"a {kind}, which no tensor takes"
            case ast.Dict(keys=keys, values=values):
                scores = [
                    entry
                    for key, entry in zip(keys, values, strict=True)
                    if isinstance(key, ast.Constant) and key.value == "score"
                ]
                kind = (
                    self.no_score(scores[0])
                    if len(scores) == 1
                    and not isinstance(scores[0], (ast.Dict, ast.Name))
                    and None not in keys
                    else ""
                )
                return f"a dictionary whose score is {kind}" if kind else ""
        return ""

    def _is_awaitable(self, name: str) -> bool:
        """Return whether a name is an `async` function of the file, whose call runs nothing until awaited."""
        found = lasting(self.tree).get(name)
        if not isinstance(found, ast.AsyncFunctionDef) or found.decorator_list:
            return False
        return not any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in _own_nodes(found))

    def _number(self, function: ast.expr) -> str:
        """Return the name of a number type of the standard library that is no float.

        It is returned if an expression certainly is its class.
        """
        counts = Counter(names_bound(self.tree))
        for node in walk(self.tree):
            match node:
                case ast.ImportFrom(module=str(module), level=0, names=aliases):
                    known = {
                        alias.asname or alias.name: alias.name
                        for alias in aliases
                        if (module, alias.name) in _NUMBERS
                    }
                case ast.Import(names=aliases):
                    known = {
                        f"{alias.asname or module}.{name}": name
                        for alias in aliases
                        for module, name in _NUMBERS
                        if alias.name == module
                    }
                case _:
                    continue
            name = dotted(function)
            if name in known and counts[name.partition(".")[0]] == 1:
                return known[name]
        return ""


def _result(function: ast.FunctionDef | ast.AsyncFunctionDef, results: _Results) -> Iterator[str]:
    """Check for a function that never returns a value, or returns dictionaries without a score."""
    returned = [node for node in _own_nodes(function) if isinstance(node, ast.Return)]
    own = list(_own_nodes(function))
    if any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own):
        return
    if all(
        node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
        for node in returned
    ):
        if not any(isinstance(node, ast.Raise) for node in own):
            yield f"defines {function.name}, which returns nothing"
        return
    if test := _nothing_unless(function):
        yield (
            f"defines {function.name}, which returns None unless `{test}` holds, as for an answer in "
            "another form"
        )
        return
    kinds = [results.no_score(node.value) for node in returned]
    if returned and all(kinds):
        yield (
            f"has a {function.name} that returns {kinds[0]}, but verl expects a number or a dictionary with "
            "a score"
        )
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
    """Return the test of the answer without which the function ends with nothing.

    The result is "" if there is none, or if it may never fail.

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
            names = {node.id for node in walk(text) if isinstance(node, ast.Name)}
            return _ANSWER in names and not any(_may_match(pattern, answer) for answer in _OTHER_ANSWERS)
    return False


def _may_match(pattern: str, answer: str) -> bool:
    """Return whether a pattern may be found in an answer, whatever its flags are."""
    if lacks(pattern, answer):
        return False
    if not is_quick(pattern, len(answer) + 1):
        return True
    try:
        return re.search(pattern, answer, re.DOTALL | re.IGNORECASE | re.MULTILINE) is not None
    except (re.error, OverflowError, RecursionError):
        return True


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of nested functions."""
    waiting = list(ast.iter_child_nodes(function))
    for node in waiting:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
