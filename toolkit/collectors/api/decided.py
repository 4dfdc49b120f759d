"""Evaluation of conditions that depend on the job's settings or on a flag set elsewhere in verl."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from packaging.version import InvalidVersion, Version

from verl_doctor.toolkit.collectors.api.guards import exits, handler_of, judge_by_trees, suppressing
from verl_doctor.toolkit.collectors.api.operand import (
    THERE,
    Operand,
    is_plain,
    is_unclear,
    note,
    note_comparison,
    note_truth,
)
from verl_doctor.toolkit.collectors.api.settings import Settings, SettingsSection
from verl_doctor.toolkit.collectors.api.value import LocalClass, Scope, SelfOf
from verl_doctor.toolkit.collectors.api.values import ValueReader, annotation_text
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.answers import Missing, Present
from verl_doctor.toolkit.sources.python.evaluate import ARITHMETIC, COMPARE, UNCLEAR, applied
from verl_doctor.toolkit.sources.python.source import dotted, walk
from verl_doctor.toolkit.sources.python.summary import absolute
from verl_doctor.toolkit.sources.python.symbols import Module

_END = 1 << 30
_DEEPEST = 40
_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN = {"bool": bool, "float": float, "int": int, "len": len, "str": str}
_OF_VERSIONS = frozenset({"base_version", "major", "micro", "minor", "release"})
_TEXT = frozenset({"endswith", "lower", "split", "startswith", "strip", "upper"})
# verl's functions that convert a section to an object, or back.
_SAME = frozenset({"omega_conf_to_dataclass", "to_container", "to_object", "deepcopy", "create"})
_READS_VARIABLE = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})
_ENVIRONMENT = frozenset({"os.environ", "environ"})
# verl's names for the mesh dimension across which a rollout is sharded.
_TENSOR_PARALLEL = ("infer_tp", "tensor_model_parallel_size")
_IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError")


class Decisions:
    """Evaluates the conditions of one module.

    Without settings, only constants and the outcomes of imports are known.
    """

    def __init__(self, reader: ValueReader, settings: Settings | None = None) -> None:
        self.reader, self.settings = reader, settings
        self._active: set[tuple[int, str]] = set()
        self._known: dict[tuple[int, int], tuple[ast.expr, bool | None]] = {}
        self._first_only = False  # whether a value was used that a function changes later
        # The last expression that was looked up in the settings, and the key at which it was found.
        self._found: tuple[ast.expr, str] | None = None
        self._notes = Settings() if settings is None else settings  # notes what is consulted

    def holds(self, test: ast.expr, scope: Scope) -> bool | None:
        """Return whether a condition holds; None if undecided."""
        key = (id(test), id(scope))
        if key in self._known:
            return self._known[key][1]
        with self._notes.for_good():
            held = self._holds(test, scope)
        if not self.reader.building and not self._active:  # the contents of a half-built scope may change
            self._known[key] = (test, held)
        return held

    def _holds(self, test: ast.expr, scope: Scope) -> bool | None:
        before, self._first_only = self._first_only, False
        try:
            held = self._truth(test, scope, _line_of(test))
            if held is False and self._first_only:
                return None
            return self._of_feature(test) if held is None else held
        except RecursionError:
            return None
        finally:
            self._first_only = before

    def is_none(self, node: ast.expr, scope: Scope) -> bool:
        """Return whether an expression is certainly None."""
        before, self._first_only = self._first_only, False
        try:
            return self.value(node, scope, _line_of(node)) is None and not self._first_only
        except RecursionError:
            return False
        finally:
            self._first_only = before

    def is_unbound(self, body: list[ast.stmt], name: str, scope: Scope) -> bool:
        """Return whether these statements certainly leave a name unbound."""
        try:
            return name not in scope.changed and self._after(body, name, _END, scope, MISSING) is MISSING
        except RecursionError:
            return False

    def _of_feature(self, test: ast.expr) -> bool | None:
        """Return whether a condition tests for a part of verl, such as `lora_loaded`.

        The script switches that part on, so the condition may hold later.
        """
        features = self.settings.features if self.settings is not None else ()
        if not features or any(
            isinstance(part, (ast.Not, ast.NotIn, ast.Is, ast.Lt, ast.LtE, ast.Or)) for part in walk(test)
        ):
            return None
        if any(
            isinstance(part, ast.Compare)
            and isinstance(part.ops[0], (ast.Gt, ast.GtE))
            and not isinstance(part.comparators[0], ast.Constant)
            for part in walk(test)
        ):
            return None  # two quantities of the part are compared: that is no switch
        names = {dotted(part).lower() for part in walk(test) if isinstance(part, (ast.Name, ast.Attribute))}
        return True if any(word in name for word in features for name in names) else None

    def value(self, node: ast.expr, scope: Scope, line: int) -> Any:
        """Return the value of an expression at a line: a Python value, a `SettingsSection`, or UNCLEAR."""
        key = (id(node), "")
        if key in self._active or len(self._active) > _DEEPEST:
            return UNCLEAR
        self._active.add(key)
        try:
            return self._value(node, scope, line)
        finally:
            self._active.discard(key)

    def _value(self, node: ast.expr, scope: Scope, line: int) -> Any:
        if isinstance(node, (ast.Attribute, ast.Call)):
            known = self.reader.value(node, scope)
            if isinstance(known, (str, Version)):
                return known
            if (
                isinstance(node, ast.Call)
                and (answer := self.reader.return_value(node, scope, self)) is not UNCLEAR
            ):
                return answer
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                values = tuple(self.value(element, scope, line) for element in elements)
                return UNCLEAR if UNCLEAR in values else values
            case ast.Dict(keys=keys):
                return THERE if any(key is not None for key in keys) else {} if not keys else UNCLEAR
            case ast.Name(id=name):
                return self._name(name, scope, line)
            case ast.Attribute(value=owner, attr=name) if isinstance(
                of := self.reader.value(owner, scope), Version
            ):
                return getattr(of, name) if name in _OF_VERSIONS else UNCLEAR
            case ast.Attribute(value=owner, attr="__version_tuple__"):
                of = self.reader.read(self.reader.value(owner, scope), "__version__")
                return _release(of) if isinstance(of, str) else UNCLEAR
            case ast.Subscript(value=owner, slice=ast.Slice() | ast.Constant(value=int()) as part):
                return _cut(self.value(owner, scope, line), part)
            case ast.Attribute(value=owner, attr=name):
                return self._attribute(node, owner, name, scope, line)
            case ast.Subscript(value=owner, slice=ast.Constant(value=str(name))):
                if dotted(owner) in _ENVIRONMENT and self.settings is not None:
                    return self.settings.variable(name, UNCLEAR)
                return self._item(node, self.value(owner, scope, line), name, UNCLEAR)
            case ast.Call():
                return self._call(node, scope, line)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                held = self.test(operand, scope, line)
                return UNCLEAR if held is None else not held
            case ast.BoolOp(op=op, values=parts):
                return self._joined(isinstance(op, ast.And), parts, scope, line)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                held = self.test(test, scope, line)
                sides = (body, orelse) if held is None else ((body,) if held else (orelse,))
                return _agreed([self.value(side, scope, line) for side in sides])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compared([left, *comparators], ops, scope, line)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                operands = [self._operand(side, scope, line) for side in (left, right)]
                if is_unclear(operands, self._notes):
                    return UNCLEAR
                note(operands, self._notes)
                return applied(ARITHMETIC[type(op)], *(operand.value for operand in operands))
        return UNCLEAR

    def _numbers(self, node: ast.Call, scope: Scope, line: int) -> Any:
        """Evaluate the two expressions that turn a version into a tuple of numbers.

        They are `tuple(map(int, version.split(".")))` and `tuple(int(part) for part in version.split("."))`.
        """
        match node.args:
            case [ast.Call(func=ast.Name(id="map"), args=[ast.Name(id="int"), parts])]:
                return _integers(self.value(parts, scope, line))
            case [
                ast.GeneratorExp(
                    elt=ast.Call(func=ast.Name(id="int"), args=[ast.Name(id=part)]),
                    generators=[ast.comprehension(target=ast.Name(id=each), iter=parts, ifs=[])],
                )
            ] if part == each:
                return _integers(self.value(parts, scope, line))
            case [inner]:
                found = self.value(inner, scope, line)
                return found if isinstance(found, tuple) and found is not THERE else UNCLEAR
        return UNCLEAR

    def test(self, node: ast.expr, scope: Scope, line: int) -> bool | None:
        """Like `holds`, for a part of a condition."""
        known = judge_by_trees(node, self.reader, scope)
        if known.holds is not None or known.probe:
            return known.holds
        return self._truth(node, scope, line)

    def _truth(self, node: ast.expr, scope: Scope, line: int) -> bool | None:
        if isinstance(node, ast.BoolOp):
            return self._all_or_any(isinstance(node.op, ast.And), node.values, scope, line)
        operand = self._operand(node, scope, line)
        note_truth(operand, self._notes)
        value = operand.value
        return None if value is UNCLEAR or isinstance(value, SettingsSection) else bool(value)

    def _all_or_any(self, every: bool, parts: Iterable[ast.expr], scope: Scope, line: int) -> bool | None:
        """Return whether `and` (`every`) or `or` holds; None if undecided.

        Unlike `_joined`, it needs no values.
        """
        unclear = False
        for part in parts:
            held = self.test(part, scope, line)
            if held is not None and held is not every:
                return held
            unclear = unclear or held is None
        return None if unclear else every

    def _joined(self, every: bool, parts: Iterable[ast.expr], scope: Scope, line: int) -> Any:
        """Evaluate `and` (`every`) or `or`: one operand may decide the result although another is unclear."""
        unclear, last = False, UNCLEAR
        for part in parts:
            held = self.test(part, scope, line)
            last = self.value(part, scope, line)
            if not every and not unclear and isinstance(last, SettingsSection):
                return last  # `section or {}`: either way a key that is not in it is missing
            if held is not None and held is not every:
                return last if last is not UNCLEAR and not unclear else held
            unclear = unclear or held is None
        if unclear:
            return UNCLEAR
        return last if last is not UNCLEAR else every

    def _compared(self, nodes: list[ast.expr], ops: list[ast.cmpop], scope: Scope, line: int) -> Any:
        operands = [self._operand(node, scope, line) for node in nodes]
        values = [operand.value for operand in operands]
        if len(ops) == 1 and isinstance(ops[0], (ast.In, ast.NotIn)) and dotted(nodes[1]) in _ENVIRONMENT:
            note(operands, self._notes)
            variable = (
                self.settings.variable(values[0], None)
                if self.settings and isinstance(values[0], str)
                else UNCLEAR
            )
            return UNCLEAR if variable is UNCLEAR else (variable is not None) is isinstance(ops[0], ast.In)
        by_identity = len(ops) == 1 and isinstance(ops[0], (ast.Is, ast.IsNot))
        if by_identity and not isinstance(nodes[1], ast.Constant):
            note(operands, self._notes)  # a right side of None decides although the left side is unclear
        elif not is_unclear(operands, self._notes):
            note_comparison(operands, ops, self._notes)
        if (
            by_identity
            and values[1] is None
            and (values[0] is THERE or isinstance(values[0], SettingsSection))
        ):
            return isinstance(ops[0], ast.IsNot)
        if not all(map(is_plain, values)):
            return UNCLEAR
        found = [applied(COMPARE[type(op)], values[place], values[place + 1]) for place, op in enumerate(ops)]
        return UNCLEAR if UNCLEAR in found else all(found)

    def _operand(self, node: ast.expr, scope: Scope, line: int) -> Operand:
        """Return the value of an expression. What was consulted for it counts only once it is noted."""
        self._found = None
        with self._notes.apart() as consulted:
            value = self.value(node, scope, line)
        if self._found is None or not is_plain(value):
            return Operand(value, consulted)
        looked_up, key = self._found
        if isinstance(node, ast.Name):
            home, entries = scope.find(node.id) or (None, [])
            if home is scope:
                entries = [entry for entry in entries if not _is_from(entry.expression, line)]
            is_key = len(entries) == 1 and entries[0].expression is looked_up
        else:
            is_key = node is looked_up
        return Operand(value, consulted, key if is_key else "")

    def answer(self, body: Iterable[ast.stmt], scope: Scope) -> Any:
        """Return what a function returns with this body; UNCLEAR if undecided."""
        for node in body:
            match node:
                case ast.Return(value=value):
                    return None if value is None else self.value(value, scope, node.lineno)
                case ast.If(test=test, body=then, orelse=otherwise):
                    held = self.test(test, scope, node.lineno)
                    if held is None:
                        return UNCLEAR
                    found = self.answer(then if held else otherwise, scope)
                    if found is not MISSING:
                        return found
                case (
                    ast.Assign()
                    | ast.AnnAssign()
                    | ast.Import()
                    | ast.ImportFrom()
                    | ast.Expr(value=ast.Constant())
                ):
                    continue
                case ast.Try(body=inner, orelse=[], finalbody=[]) if inner and isinstance(
                    inner[-1], ast.Return
                ):
                    found = self.answer(inner, scope)
                    return found if found is not MISSING else UNCLEAR
                case _:
                    return UNCLEAR
        return MISSING

    # --- names

    def _name(self, name: str, scope: Scope, line: int) -> Any:
        found = scope.find(name)
        if found is None:
            return UNCLEAR
        home, entries = found
        if home.body is None:
            return UNCLEAR
        until = line if home is scope else _END
        if name in home.changed:
            self._first_only = True
        key = (id(home), f"{name}:{until}")
        if key in self._active:
            return UNCLEAR
        self._active.add(key)
        try:
            parameter = next((entry for entry in entries if entry.parameter), None)
            begin: Any = MISSING
            if parameter is not None and isinstance(parameter.expression, ast.Constant):
                begin = parameter.expression.value
            elif parameter is not None:
                section = self._section(name, parameter.annotation)
                begin = UNCLEAR if section is None else section
            value = self._after(home.body, name, until, home, begin)
            return UNCLEAR if value is MISSING else value
        finally:
            self._active.discard(key)

    def _section(self, name: str, annotation: str) -> SettingsSection | None:
        if self.settings is None:
            return None
        if annotation and self.reader.is_watched(self.reader.instance_of(annotation, self.reader.module)):
            return None
        return self.settings.section_of(name, annotation, self.reader.module.name)

    def _after(self, body: Iterable[ast.stmt], name: str, until: int, scope: Scope, value: Any) -> Any:
        """Return the value of a name after these statements, or where they reach the line `until`."""
        for node in body:
            if node.lineno >= until:
                break
            if name in self.reader.bound(node):
                value = self._step(node, name, until, scope, value)
        return value

    def _step(self, node: ast.stmt, name: str, until: int, scope: Scope, value: Any) -> Any:
        inside = node.lineno < until <= (node.end_lineno or node.lineno)
        match node:
            case (
                ast.Assign(targets=[ast.Name()], value=given)
                | ast.AnnAssign(target=ast.Name(), value=ast.expr() as given)
            ):
                section = None
                if isinstance(given, ast.Call) and not isinstance(node, ast.Assign):
                    section = self._section(name, annotation_text(node.annotation))
                return section or self.value(given, scope, node.lineno)
            case ast.Import() | ast.ImportFrom():
                return THERE if self._imports(node) else self._from_other(node, name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return THERE
            case ast.If(test=test, body=then, orelse=otherwise):
                if inside:
                    within = next((part for part in (then, otherwise) if _holds_line(part, until)), [])
                    return self._after(within, name, until, scope, value)
                held = self.test(test, scope, node.lineno)
                ways = [then, otherwise] if held is None else [then if held else otherwise]
                return _agreed(
                    [
                        self._after(way, name, until, scope, value)
                        for way in ways
                        if held is not None or not exits(way)
                    ]
                )
            case ast.With(body=block) | ast.AsyncWith(body=block):
                bound = any(
                    _stores_name(item.optional_vars, name) for item in node.items if item.optional_vars
                )
                begin = UNCLEAR if bound else value
                handlers = [suppressing(item, self.reader, scope) for item in node.items]
                passes = any(
                    handler is not None and any(map(handler.takes, _IMPORT_ERRORS)) for handler in handlers
                )
                if not inside and passes and self._fails(block):
                    return begin
                return self._after(block, name, until, scope, begin)
            case ast.Try():
                return self._tried(node, name, until, scope, value, inside=inside)
        return UNCLEAR

    def _from_other(self, node: ast.Import | ast.ImportFrom, name: str) -> Any:
        """Return the value of a flag that another module of the same tree sets."""
        alias = next((alias for alias in node.names if (alias.asname or alias.name) == name), None)
        if not isinstance(node, ast.ImportFrom) or alias is None:
            return UNCLEAR
        return self.reader.flag(absolute(node, self.reader.module.package), alias.name)

    def _tried(self, node: ast.Try, name: str, until: int, scope: Scope, value: Any, *, inside: bool) -> Any:
        if inside:
            parts = [node.body, node.orelse, node.finalbody, *(part.body for part in node.handlers)]
            within = next((part for part in parts if _holds_line(part, until)), [])
            return self._after(within, name, until, scope, value) if within is node.body else UNCLEAR
        fails = self._fails(node.body)
        ways: list[Any] = []
        if fails is not True:
            ways.append(self._after([*node.body, *node.orelse], name, until, scope, value))
        if fails is not False:
            handlers = [(part, handler_of(part, scope)) for part in node.handlers]
            if fails:
                handlers = [entry for entry in handlers if any(map(entry[1].takes, _IMPORT_ERRORS))][:1]
            ways += [
                self._after(part.body, name, until, scope, value)
                for part, handler in handlers
                if not exits(part.body)
            ]
        found = _agreed(ways) if ways else UNCLEAR
        return self._after(node.finalbody, name, until, scope, found)

    def _fails(self, body: Iterable[ast.stmt]) -> bool | None:
        """Return whether a block fails at an import; None if unknown."""
        certain = True
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                importable = self._imports(node)
                if importable is False:
                    return True
                certain = certain and importable is True
            elif not _is_harmless(node):
                certain = False
        return False if certain else None

    def _imports(self, node: ast.Import | ast.ImportFrom) -> bool | None:
        """Return whether an import of the examined packages succeeds. Nothing is known of other packages."""
        sources = self.reader.sources
        source = absolute(node, self.reader.module.package) if isinstance(node, ast.ImportFrom) else ""
        wanted = (
            [(source, alias.name) for alias in node.names]
            if source
            else [(alias.name, "") for alias in node.names]
        )
        found: list[bool | None] = []
        for module, name in wanted:
            own = sources.own_name(module)
            if own is None or own.partition(".")[0] not in self.reader.versions or name == "*":
                found.append(None)
                continue
            answer = sources.import_name(module, name) if name else sources.import_module(module)
            found.append(
                True if isinstance(answer, Present) else False if isinstance(answer, Missing) else None
            )
        return False if False in found else None if None in found else True

    # --- attributes, items and calls

    def _attribute(self, node: ast.expr, owner: ast.expr, name: str, scope: Scope, line: int) -> Any:
        this = self.reader.value(owner, scope)
        if isinstance(this, SelfOf):
            return self._of_self(this.local, name)
        if self.reader.is_watched(this):
            return UNCLEAR
        return self._item(node, self.value(owner, scope, line), name, UNCLEAR)

    def _item(self, node: ast.expr, owner: Any, name: str, default: Any) -> Any:
        """Return the value of `node`, the item `name` of a section or of a dictionary."""
        if isinstance(owner, SettingsSection) and self.settings is not None:
            key, found = self.settings.found(owner, name)
            self._found = (node, key) if key else None
            if isinstance(found, list):
                return tuple(found)
            return default if found is MISSING else found
        return owner.get(name, default) if isinstance(owner, dict) else UNCLEAR

    def _of_module(self, module: Module, name: str, default: Any) -> Any:
        """Return the value of `getattr(module, name, default)`.

        It is returned as far as it is known whether the module has the name.
        """
        answer = self.reader.sources.member(module, name) if self.reader.is_watched(module) else None
        return default if isinstance(answer, Missing) else THERE if isinstance(answer, Present) else UNCLEAR

    def _of_self(self, local: LocalClass, name: str) -> Any:
        """Return the value of `self.name`, if it is a section or all stored there follows from settings."""
        if self.settings is None:
            return UNCLEAR
        key = (id(local), f"self.{name}")
        if key in self._active:
            return UNCLEAR
        self._active.add(key)
        try:
            stored, above = local.stored.get(name, []), local.bases
            if not stored and any(name in base.stored for base in above):
                return _agreed([self._of_self(base, name) for base in above if name in base.stored])
            if not stored:
                return self._of_class(local, name)
            values = []
            for expression, annotation, scope in stored:
                section = self._annotated(annotation) if annotation else None
                if section is not None:
                    values.append(section)
                elif expression is None or isinstance(expression, ast.Constant):
                    return UNCLEAR
                else:
                    values.append(self.value(expression, scope, expression.lineno))
            found = _agreed(values)
            if found is UNCLEAR and len(values) == 1 and not self._is_of_library(local):
                return self._by_name(name, stored[0][1])
            return found
        finally:
            self._active.discard(key)

    def _of_class(self, local: LocalClass, name: str) -> Any:
        """Return the value of a property of the class, or a section that another class of verl stores."""
        for part in local.node.body:
            if (
                isinstance(part, _Functions)
                and part.name == name
                and "property" in {dotted(decorator) for decorator in part.decorator_list}
            ):
                match [node for node in part.body if not _is_harmless(node)]:
                    case [ast.Return(value=ast.expr() as returned)] if local.home is not None:
                        inner = local.home(part)
                        return self.value(returned, inner, returned.lineno)
                return UNCLEAR
        return UNCLEAR if self._is_of_library(local) else self._by_name(name, "")

    def _by_name(self, name: str, annotation: str) -> Any:
        section = (
            self.settings.section_of(name, annotation, self.reader.module.name) if self.settings else None
        )
        return UNCLEAR if section is None else section

    def _annotated(self, annotation: str) -> SettingsSection | None:
        if self.settings is None or self.reader.is_watched(
            self.reader.instance_of(annotation, self.reader.module)
        ):
            return None
        return self.settings.section_of("", annotation, self.reader.module.name)

    def _is_of_library(self, local: LocalClass) -> bool:
        """Return whether a class extends a library's class, whose attributes have meanings unknown here."""
        made = self.reader.class_of(local)
        bases = self.reader.bases_of(made) if made is not None else None
        return bases is None or any(part.module.partition(".")[0] in self.reader.versions for part in bases)

    def _call(self, node: ast.Call, scope: Scope, line: int) -> Any:
        called = dotted(node.func)
        if called in {"tuple", "list"}:
            return self._numbers(node, scope, line)
        first = node.args[0] if node.args else None
        if called in _READS_VARIABLE and isinstance(first, ast.Constant) and isinstance(first.value, str):
            default = self.value(node.args[1], scope, line) if len(node.args) > 1 else None
            return UNCLEAR if self.settings is None else self.settings.variable(first.value, default)
        if called in _PLAIN and len(node.args) == 1 and not node.keywords and first is not None:
            value = self.value(first, scope, line)
            return _made(_PLAIN[called], value) if is_plain(value) else UNCLEAR
        if called.rpartition(".")[2] in _SAME and first is not None:
            value = self.value(first, scope, line)
            return value if isinstance(value, SettingsSection) or value is None else UNCLEAR
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *rest]):
                default = self.value(rest[0], scope, line) if rest else UNCLEAR
                if isinstance(owner, ast.Name) and owner.id == "self":
                    return self._attribute(node, owner, name, scope, line)
                if isinstance(module := self.reader.value(owner, scope), Module):
                    return self._of_module(module, name, default)
                return self._item(node, self.value(owner, scope, line), name, default)
            case ast.Call(
                func=ast.Attribute(value=owner, attr="get"), args=[ast.Constant(value=str(name)), *rest]
            ):
                default = self.value(rest[0], scope, line) if rest else None
                return self._item(node, self.value(owner, scope, line), name, default)
            case ast.Call(
                func=ast.Attribute(value=ast.Subscript(slice=ast.Constant(value=mesh)), attr="size"), args=[]
            ):
                if mesh == _TENSOR_PARALLEL[0] and self.settings is not None:
                    found = self.settings.at(f"actor_rollout_ref.rollout.{_TENSOR_PARALLEL[1]}")
                    return UNCLEAR if found is MISSING else found
            case ast.Call(func=ast.Attribute(value=owner, attr=method), keywords=[]) if method in _TEXT:
                text = self.value(owner, scope, line)
                given = [self.value(argument, scope, line) for argument in node.args]
                if isinstance(text, str) and all(isinstance(argument, str) for argument in given):
                    made = getattr(text, method)(*given)
                    return tuple(made) if isinstance(made, list) else made
        return UNCLEAR


def _line_of(node: ast.expr) -> int:
    """Return the line of an expression. A synthesized negation has no line, so its operand's counts."""
    return next((line for part in walk(node) if (line := getattr(part, "lineno", 0))), _END)


def _is_from(node: ast.expr | None, line: int) -> bool:
    """Return whether an expression begins at this line or below it."""
    return node is not None and node.lineno >= line


def _release(text: str) -> Any:
    try:
        return Version(text).release
    except InvalidVersion:
        return UNCLEAR


def _integers(texts: Any) -> Any:
    is_split = (
        isinstance(texts, tuple) and texts is not THERE and all(isinstance(text, str) for text in texts)
    )
    return tuple(map(int, texts)) if is_split and all(text.isdigit() for text in texts) else UNCLEAR


def _cut(value: Any, part: ast.expr) -> Any:
    """Evaluate `value[:2]` or `value[0]` of a string or a tuple."""
    if value is THERE or not isinstance(value, (str, tuple)):
        return UNCLEAR
    match part:
        case ast.Constant(value=int(place)) if -len(value) <= place < len(value):
            return value[place]
        case ast.Slice(lower=None, upper=ast.Constant(value=int(end)), step=None):
            return value[:end]
    return UNCLEAR


def _made(kind: Any, value: Any) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError):
        return UNCLEAR


def _agreed(values: list[Any]) -> Any:
    """Return the value on which all branches agree.

    Several values that are only known to exist count as equal.
    """
    first = values[0] if values else UNCLEAR
    same = all(value is first or (type(value) is type(first) and value == first) for value in values)
    return first if same else UNCLEAR


def _stores_name(node: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in walk(node))


def _holds_line(body: list[ast.stmt], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)


def _is_harmless(node: ast.stmt) -> bool:
    """Return whether a statement cannot fail: the assignment of a constant, `pass`, or a docstring."""
    match node:
        case (
            ast.Pass()
            | ast.Expr(value=ast.Constant())
            | ast.Assign(targets=[ast.Name()], value=ast.Constant())
        ):
            return True
    return False
