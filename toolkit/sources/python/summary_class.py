"""Summarises the syntax tree of a class or a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

from verl_doctor.toolkit.sources.python.source import dotted, statements, text_of, walk
from verl_doctor.toolkit.sources.python.symbols import Attribute, Class, Function, Parameter, Role, Signature

# Decorators that leave a function's parameters unchanged. `deprecate_kwargs` and similar ones are vLLM's own
# (vllm/utils), `PublicAPI` and similar ones Ray's (ray/util/annotations.py,
# ray/_private/client_mode_hook.py): they wrap with functools.wraps and pass everything on, or mark the
# function and return it.
_KEEP_SIGNATURE = frozenset(
    {
        "Deprecated",
        "DeveloperAPI",
        "PublicAPI",
        "client_mode_hook",
        "wrap_auto_init",
        "abc.abstractmethod",
        "abstractmethod",
        "asyncio.coroutine",
        "cache",
        "contextlib.asynccontextmanager",
        "asynccontextmanager",
        "contextlib.contextmanager",
        "contextmanager",
        "deprecate_args",
        "deprecate_kwargs",
        "deprecated",
        "final",
        "functools.cache",
        "functools.lru_cache",
        "functools.wraps",
        "lru_cache",
        "override",
        "torch.inference_mode",
        "torch.no_grad",
        "typing.final",
        "typing.override",
        "typing_extensions.deprecated",
        "typing_extensions.override",
        "instrument",
        "warnings.deprecated",
        "wraps",
    }
)
_PROPERTIES = ("property", "cached_property", "functools.cached_property", "abc.abstractproperty")
_ABSTRACT = ("abstractmethod", "abstractproperty")
# Wrap a generator: the annotation then no longer describes a call's result.
_CHANGE_RESULT = ("contextmanager", "asynccontextmanager")
# Methods of a dict that do not change it.
_READS = frozenset({"copy", "get", "items", "keys", "values"})
_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


def is_type_checking(test: ast.expr) -> bool:
    """Return whether a condition holds for type checkers only."""
    return dotted(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING", "t.TYPE_CHECKING"}


def function_of(node: ast.FunctionDef | ast.AsyncFunctionDef, module: str, *, in_class: bool) -> Function:
    """Summarise a function."""
    decorators = [dotted(part.func if isinstance(part, ast.Call) else part) for part in node.decorator_list]
    role: Role = "method" if in_class else "function"
    known = True
    for name in decorators:
        if name in {"classmethod", "staticmethod"}:
            role = "classmethod" if name == "classmethod" else "staticmethod"
        elif name in _PROPERTIES or name.endswith((".setter", ".deleter", ".getter")):
            role = "property"
        else:
            known = known and name in _KEEP_SIGNATURE
    returns = text_of(node.returns, 400) if node.returns is not None else ""
    if role == "classmethod" and not returns and _returns_cls(node):
        returns = "Self"
    if any(name.rpartition(".")[2] in _CHANGE_RESULT for name in decorators):
        returns = ""
    signature = signature_of(node.args) if known else None
    return Function(
        node.name,
        module,
        node.lineno,
        role,
        signature,
        returns if known else "",
        isinstance(node, ast.AsyncFunctionDef),
        any(name.rpartition(".")[2] in _ABSTRACT for name in decorators),
        _dataclass_made(node, decorators),
        _passed_on(node) if node.name == "__init__" else None,
    )


def _passed_on(node: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, tuple[str, ...]] | None:
    """Return what an `__init__` passes to `super().__init__` in addition to its own `**kwargs`.

    None if these also go elsewhere.
    """
    rest = node.args.kwarg
    if rest is None:
        return None
    mentions = [part for part in walk(node) if isinstance(part, ast.Name) and part.id == rest.arg]
    for statement in node.body:
        match statement:
            case ast.Expr(
                ast.Call(func=ast.Attribute(ast.Call(func=ast.Name(id="super")), "__init__")) as call
            ):
                spread = [keyword.value for keyword in call.keywords if keyword.arg is None]
                if spread == mentions and not any(
                    isinstance(argument, ast.Starred) for argument in call.args
                ):
                    named = (keyword.arg for keyword in call.keywords if keyword.arg is not None)
                    return len(call.args), tuple(named)
    return None


def _dataclass_made(
    node: ast.FunctionDef | ast.AsyncFunctionDef, decorators: list[str]
) -> Literal["", "strict", "lenient"]:
    """Return the kind of dataclass that a decorator makes.

    Without `extra="forbid"`, pydantic ignores unknown keywords.
    """
    if not any(name.rpartition(".")[2] == "dataclass_transform" for name in decorators):
        return ""
    forbids = any(
        isinstance(part, ast.keyword)
        and part.arg == "extra"
        and isinstance(part.value, ast.Constant)
        and part.value.value == "forbid"
        for part in walk(node)
    )
    return "strict" if forbids else "lenient"


def signature_of(arguments: ast.arguments) -> Signature:
    """Read the parameters of a function."""
    plain = [*arguments.posonlyargs, *arguments.args]
    first_default = len(plain) - len(arguments.defaults)
    parameters = [
        Parameter(
            argument.arg,
            "positional" if index < len(arguments.posonlyargs) else "either",
            index < first_default,
        )
        for index, argument in enumerate(plain)
    ]
    parameters += [
        Parameter(argument.arg, "keyword", default is None)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    return Signature(tuple(parameters), arguments.vararg is not None, arguments.kwarg is not None)


def class_of(node: ast.ClassDef, module: str, outer: str = "") -> Class:
    """Summarise a class: its own members, and what its methods store on `self`."""
    reader = _ClassReader(node, module, outer)
    reader.block(node.body)
    for statement in statements(node):
        if isinstance(statement, _Functions):
            reader.stored(statement)
    reader.name_makers()
    return Class(
        name=reader.name,
        module=module,
        line=node.lineno,
        bases=tuple(dotted(base.value if isinstance(base, ast.Subscript) else base) for base in node.bases),
        decorators=tuple(
            dotted(part.func if isinstance(part, ast.Call) else part) for part in node.decorator_list
        ),
        keywords=tuple(keyword.arg or "**" for keyword in node.keywords),
        members=reader.members,
        open=reader.open,
        metaclass=next(
            (dotted(keyword.value) or "?" for keyword in node.keywords if keyword.arg in {"metaclass", None}),
            "",
        ),
    )


class _ClassReader:
    def __init__(self, node: ast.ClassDef, module: str, outer: str) -> None:
        self.name = f"{outer}.{node.name}" if outer else node.name
        self.module = module
        self.members: dict[str, Function | Attribute | Class] = {}
        self.made: dict[str, set[str]] = {}
        self.open = ""
        self.keyword_only = any(
            keyword.arg == "kw_only"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value is True
            for decorator in node.decorator_list
            if isinstance(decorator, ast.Call)
            for keyword in decorator.keywords
        )

    def block(self, body: list[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.FunctionDef(name="__getattr__" | "__getattribute__" as name):
                    self.open = f"it defines {name}"
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._method(node)
                case ast.ClassDef(name=name):
                    self.members[name] = class_of(node, self.module, self.name)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    self.members[name] = self._field(node, name)
                case ast.Assign(targets=[ast.Name(id="__slots__")], value=value):
                    self._slots(value)
                case ast.Assign(targets=targets):
                    for target in targets:
                        for name in _names(target):
                            self.members[name] = Attribute(name, self.module, node.lineno)
                case ast.If(test=test) if is_type_checking(test):
                    self.block(node.body)
                    self.block(node.orelse)
                case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                    self.open = "it binds members conditionally"

    def _method(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if any(dotted(part).rpartition(".")[2] in {"setter", "deleter"} for part in node.decorator_list):
            return  # the getter above it is more informative
        self.members[node.name] = function_of(node, self.module, in_class=True)

    def _slots(self, value: ast.expr) -> None:
        """Add the names in `__slots__`, attributes of every instance wherever they are assigned."""
        parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value]
        for part in parts:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                self.members.setdefault(part.value, Attribute(part.value, self.module, part.lineno))

    def _field(self, node: ast.AnnAssign, name: str) -> Attribute:
        annotation_text = text_of(node.annotation, 400)
        kind = dotted(
            node.annotation.value if isinstance(node.annotation, ast.Subscript) else node.annotation
        )
        if kind.rpartition(".")[2] == "KW_ONLY":  # not a field: those after it are keyword-only
            self.keyword_only = True
            return Attribute(name, self.module, node.lineno, annotation_text)
        if kind.rpartition(".")[2] == "ClassVar" or _keyword(node.value, "init") is False:
            return Attribute(name, self.module, node.lineno, annotation_text)
        keyword_only = self.keyword_only or _keyword(node.value, "kw_only") is True
        return Attribute(
            name,
            self.module,
            node.lineno,
            annotation_text,
            "keyword" if keyword_only else "either",
            required=node.value is None,
        )

    def stored(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Add what a method stores on its first parameter; computed names keep the class open."""
        arguments = [*function.args.posonlyargs, *function.args.args]
        if not arguments:
            return
        this = arguments[0].arg
        for node in statements(function):
            if isinstance(node, ast.AnnAssign):
                self._annotated(node, this)
            elif isinstance(node, ast.Assign):
                self._made(node, {argument.arg: argument.annotation for argument in arguments}, this)
            for target in _written(node):
                self._written(target, this)
            if isinstance(node, (ast.Expr, ast.Assign)):
                self._computed(node.value, this)

    def name_makers(self) -> None:
        """Record what creates each attribute, where all methods agree."""
        for name, made_by in self.made.items():
            entry = self.members.get(name)
            if isinstance(entry, Attribute) and not entry.annotation and len(made_by) == 1:
                maker = next(iter(made_by))
                self.members[name] = (
                    replace(entry, annotation=maker) if "[" in maker else replace(entry, made_by=maker)
                )

    def _annotated(self, node: ast.AnnAssign, this: str) -> None:
        """Read `self.name: Kind`, which takes precedence over other sources."""
        match node.target:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == this:
                before = self.members.get(attr)
                if before is None or (isinstance(before, Attribute) and not before.annotation):
                    annotation_text = text_of(node.annotation, 400)
                    self.members[attr] = Attribute(attr, self.module, node.lineno, annotation_text)

    def _made(self, node: ast.Assign, parameters: Mapping[str, ast.expr | None], this: str) -> None:
        """Read `self.name = Kind(...)` and parameters that hold a class; None adds no information.

        A `Kind` that is a parameter of the method is not read.
        """
        match node:
            case ast.Assign(value=ast.Constant(value=None)):
                return
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr=attr)], value=value) if (
                name == this
            ):
                made_by = dotted(value.func) if isinstance(value, ast.Call) else ""
                known = made_by.partition(".")[0] not in parameters
                held = _class_held(parameters.get(value.id)) if isinstance(value, ast.Name) else ""
                self.made.setdefault(attr, set()).add(held or (made_by if known else ""))

    def _written(self, target: ast.expr, this: str) -> None:
        match target:
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    self._written(element, this)
            case ast.Starred(value=inner):
                self._written(inner, this)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == this:
                self.members.setdefault(attr, Attribute(attr, self.module, target.lineno))
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="__dict__")) if name == this:
                self.open = "it writes to its __dict__"

    def _computed(self, value: ast.expr, this: str) -> None:
        """Return what may set attributes of any name, unless it only reads."""
        match value:
            case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id=name), *_]) if name == this:
                self.open = "it sets attributes by computed names"
            case ast.Call(func=ast.Attribute(value=held, attr=method)) if method not in _READS:
                self._computed(held, this)
            case ast.Call(func=ast.Name(id="vars"), args=[ast.Name(id=name)]) if name == this:
                self.open = "it writes to its __dict__"
            case ast.Attribute(value=ast.Name(id=name), attr="__dict__") if name == this:
                self.open = "it writes to its __dict__"


def _class_held(annotation: ast.expr | None) -> str:
    """Return the annotation `type[Kind]` of a parameter; "" for any other."""
    match annotation:
        case ast.Subscript(value=outer) if dotted(outer).rpartition(".")[2] in {"type", "Type"}:
            return text_of(annotation, 400)
    return ""


def _written(node: ast.AST) -> Iterator[ast.expr]:
    """Yield what a statement writes to."""
    match node:
        case ast.Assign(targets=targets):
            yield from targets
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            yield target
        case ast.For(target=target) | ast.AsyncFor(target=target):
            yield target
        case ast.With(items=items) | ast.AsyncWith(items=items):
            yield from (item.optional_vars for item in items if item.optional_vars is not None)


def _returns_cls(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether every return of a class method is `cls(...)`, perhaps through a local name."""
    if not node.args.args:
        return False
    this = node.args.args[0].arg
    made = {
        statement.targets[0].id
        for statement in statements(node)
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and _calls(statement.value, this)
    }
    returned = [statement.value for statement in statements(node) if isinstance(statement, ast.Return)]
    return bool(returned) and all(
        _calls(value, this) or (isinstance(value, ast.Name) and value.id in made) for value in returned
    )


def _calls(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def _keyword(value: ast.expr | None, name: str) -> object:
    """Return the constant given for a keyword of `field(...)`."""
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg == name and isinstance(keyword.value, ast.Constant):
                return keyword.value.value
    return None


def _names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _names(element)
