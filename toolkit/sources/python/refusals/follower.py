"""Follows functions of several source trees, and raises at the first certain failure.

That is a certain `raise`, false `assert` or impossible operation.

Functions are followed with the values of a configuration. Anything not understood is `UNCLEAR`. A branch
under an unclear condition is not followed: its assignments become unclear, and its exceptions do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from verl_doctor.toolkit.sources.python.definitions import (
    ClassNode,
    Definitions,
    FunctionNode,
    Modules,
)
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.changes import Changes
from verl_doctor.toolkit.sources.python.refusals.refused import LoopLeftError, NotFollowedError, ReturnedError
from verl_doctor.toolkit.sources.python.refusals.settings import Settings
from verl_doctor.toolkit.sources.python.refusals.statements import Statements
from verl_doctor.toolkit.sources.python.refusals.syntax import decorator_of, rebound, yields
from verl_doctor.toolkit.sources.python.refusals.values import SETTERS, Frame, Made, Section, blur, set_by
from verl_doctor.toolkit.sources.python.source import SourceTree, dotted, walk

_STEPS = 20_000
_DEEPEST = 12
_TRANSPARENT = frozenset({"auto_await", "model_validator"})
"""Decorators that leave the method as its body is."""


class Follower(Statements):
    """Follows functions of several source trees.

    `look` returns the configuration's value for a key, `MISSING` or `UNDETERMINED`.

    `loops`: the body of a loop over unknown values is followed once. `variable` returns the value of an
    environment variable, None where it is not set, `UNCLEAR` where unknown. `modules` are those that were
    already read. `calls` are the known results of functions that are not followed, such as
    `torch.distributed.get_world_size`. `removed` are keys that the job takes out of the configuration:
    reading one as an attribute raises. The first tree is the program's own, the others are libraries.
    """

    def __init__(
        self,
        trees: Iterable[SourceTree],
        look: Callable[[str], Any],
        *,
        loops: bool = False,
        variable: Callable[[str], Any] = lambda _: UNCLEAR,
        modules: Modules | None = None,
        calls: Mapping[str, Any] | None = None,
        removed: frozenset[str] = frozenset(),
    ) -> None:
        self._loops = loops
        self._variable = variable
        self._calls = {} if calls is None else calls
        self.settings = Settings(look, removed)
        self._changes = Changes(self.settings)
        self.definitions = Definitions(trees, modules, self.expression)
        self._left = _STEPS
        self._depth = 0

    # What a configuration holds

    def made(self, section: str) -> Any:
        """Return the object that Hydra makes from a section with a `_target_`, inner ones first.

        Raises RefusedError.
        """
        content, target = self.settings.look(section), self.settings.look(f"{section}._target_")
        if not isinstance(content, Mapping) or not isinstance(target, str):
            for name, value in content.items() if isinstance(content, Mapping) else ():
                if isinstance(value, Mapping):
                    self.made(f"{section}.{name}")
            return Section(section)
        owner = self.definitions.named(target)
        fields: dict[str, Any] = {}
        for name in content:
            if name != "_target_":
                key = f"{section}.{name}"
                value = self.settings.value_at(key)
                fields[name] = self.made(key) if isinstance(value, Section) else value
        if not isinstance(owner, ClassNode):
            return UNCLEAR
        return self.instance(owner, fields, {name: f"{section}.{name}" for name in fields})

    def instance(self, owner: ClassNode, given: Mapping[str, Any], keys: Mapping[str, str]) -> Made:
        """Return an object of a dataclass with these fields, after its `__post_init__`.

        Raises RefusedError.
        """
        made = Made(owner, {**self._defaults(owner), **given}, dict(keys))
        method = self.definitions.method(owner, "__post_init__")
        if method is not None:
            self._tried(method, made)
        return made

    def _defaults(self, owner: ClassNode) -> dict[str, Any]:
        """Return the default values of a dataclass's fields."""
        fields: dict[str, Any] = {}
        for base in reversed(list(self.definitions.bases(owner))):
            for part in base.node.body:
                match part:
                    case ast.AnnAssign(target=ast.Name(id=name), value=value):
                        known = isinstance(value, (ast.Constant, ast.Tuple, ast.UnaryOp))
                        frame = Frame(base.module, {})
                        fields[name] = self._value(value, frame) if known and value else UNCLEAR
        return fields

    def constructed(
        self,
        owner: ClassNode,
        named: Mapping[str, Any],
        keys: Mapping[str | int, tuple[str, ...]] | None = None,
    ) -> None:
        """Follow the `__init__` of a class with these arguments, from these keys; others are unknown.

        Raises RefusedError, also for an argument that it does not accept.
        """
        method = self.definitions.method(owner, "__init__")
        if method is None:
            return
        spec = method.node.args
        taken = {argument.arg for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
        for name in named if keys is not None and spec.kwarg is None else ():
            if name not in taken:
                self.settings.read[:] = (keys or {}).get(name, ())
                words = f"{owner.node.name}.__init__() got an unexpected keyword argument '{name}'"
                self._impossible("TypeError", words, spec, Frame(method.module, {}), method.node.lineno)
        self.call(FunctionNode(method.node, method.module, Made(owner, {}), method.owner), (), named, keys)

    def method_of(self, made: Made, name: str, named: Mapping[str, Any]) -> None:
        """Follow a method of an object. Raises RefusedError."""
        method = self.definitions.method(made.owner, name)
        if method is not None and {decorator_of(mark) for mark in method.node.decorator_list} <= _TRANSPARENT:
            awaited = isinstance(method.node, ast.AsyncFunctionDef)
            function = FunctionNode(method.node, method.module, made, method.owner)
            self.call(function, (), named, awaited=awaited)

    def checked(
        self,
        owner: ClassNode,
        given: Mapping[str, Any],
        keys: Mapping[str, str],
        method: str,
        named: Mapping[str, Any] | None = None,
    ) -> None:
        """Follow a method of an object with these fields and its class's defaults.

        The method's arguments are in `named`. Raises RefusedError.
        """
        self.method_of(Made(owner, {**self._defaults(owner), **given}, dict(keys)), method, named or {})

    def _tried(self, method: FunctionNode, made: Made) -> None:
        try:
            self.call(FunctionNode(method.node, method.module, made, method.owner), (), {})
        except NotFollowedError:
            blur(made, self._stored(made.owner))

    def _stored(self, owner: ClassNode) -> frozenset[str] | None:
        """Return the names of all attributes that methods of a class may change, None if undetermined."""
        names: set[str] = set()
        for base in self.definitions.bases(owner):
            for part in walk(base.node):
                match part:
                    case ast.Attribute(attr=name, ctx=ast.Store()):
                        names.add(name)
                    case ast.Call(func=function) if dotted(function) in SETTERS:
                        name_set = set_by(part)
                        if name_set is None:
                            return None
                        names |= name_set
        return frozenset(names)

    # Functions

    def call(
        self,
        function: FunctionNode,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        keys: Mapping[str | int, tuple[str, ...]] | None = None,
        *,
        awaited: bool = False,
    ) -> Any:
        """Return a function's result, given the keys of its arguments.

        Raises RefusedError if it raises for certain, NotFollowedError where that cannot be determined.
        """
        if self._depth > _DEEPEST or isinstance(function.node, ast.AsyncFunctionDef) is not awaited:
            raise NotFollowedError
        if yields(function.node):
            raise NotFollowedError
        given = [function.bound, *arguments] if function.bound is not None else list(arguments)
        spec = function.node.args
        positional = [*spec.posonlyargs, *spec.args]
        names: dict[str, Any] = dict(function.around)
        names.update({argument.arg: UNCLEAR for argument in (*positional, *spec.kwonlyargs)})
        frame = Frame(function.module, names, function.owner, function.bound)
        for argument, default in zip(reversed(positional), reversed(spec.defaults), strict=False):
            names[argument.arg] = self._value(default, frame)
        for argument, kwdefault in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if kwdefault is not None:
                names[argument.arg] = self._value(kwdefault, frame)
        names.update(zip((argument.arg for argument in positional), given, strict=False))
        skipped = len(given) - len(arguments)
        for place, made_of in (keys or {}).items():
            if isinstance(place, str):
                frame.keys[place] = made_of
            elif place + skipped < len(positional):
                frame.keys[positional[place + skipped].arg] = made_of
        names.update({name: value for name, value in named.items() if name in names})
        for extra in (spec.vararg, spec.kwarg):
            if extra is not None:
                names[extra.arg] = UNCLEAR
        if isinstance(function.around, dict):
            function.around.update(dict.fromkeys(rebound(function.node), UNCLEAR))
        names.update(dict.fromkeys(rebound(function.node), UNCLEAR))
        self._depth += 1
        try:
            self._block(function.node.body, frame)
        except ReturnedError as end:
            return end.value
        except LoopLeftError:
            raise NotFollowedError from None
        finally:
            self._depth -= 1
        return None

    def called_as(self, node: ast.Call, module: str, names: Mapping[str, Any]) -> Any:
        """Follow a call somewhere in a module, with these names for its surroundings."""
        return self._call(node, Frame(module, dict(names)))

    def expression(self, node: ast.expr, module: str) -> Any:
        """Return the value of an expression in a module. Raises RefusedError."""
        return self._value(node, Frame(module, {}))
