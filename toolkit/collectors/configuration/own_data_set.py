"""Whether verl can construct the data set class of the user's own file."""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from verl_doctor.toolkit.sources.python.bound import lasting, names_bound
from verl_doctor.toolkit.sources.python.source import dotted, parsed, walk

_MAKES_DATA_SETS = frozenset({"create_sft_dataset", "create_rl_dataset"})
# Methods that make an object without the constructor, or that other classes inherit.
_MAKES_OBJECTS = frozenset(
    {"__new__", "__init_subclass__", "__class_getitem__", "__mro_entries__", "__metaclass__"}
)
_CONSTRUCTS = _MAKES_OBJECTS | {"__init__", "__call__", "__class__", "__bases__"}
_LOOK_ONLY = frozenset({"super", "isinstance", "issubclass", "print"})
_KNOWN = frozenset({"torch", "verl"})


def constructor(tree: ast.Module, name: str, program: Path) -> Iterator[str]:
    """Check the constructor of a data set class against the arguments that verl passes by name."""
    node = lasting(tree).get(name)
    if not isinstance(node, ast.ClassDef) or not _is_plain(tree, node):
        return
    own = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    passed = _passed_to_data_sets(program)
    if len(own) != 1 or own[0].decorator_list or not passed:
        return
    spec = own[0].args
    named = {argument.arg for argument in (*spec.args, *spec.kwonlyargs)}
    if spec.kwarg is None and (refused := next((name for name in passed if name not in named), "")):
        yield f"has a class {node.name} whose constructor does not accept {refused}, which verl passes"
        return
    optional = len(spec.args) - len(spec.defaults)
    needed = [argument.arg for argument in spec.args[1:optional]]
    needed += [
        argument.arg
        for argument, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
        if default is None
    ]
    if missing := next((name for name in needed if name not in passed), ""):
        yield f"has a class {node.name} whose constructor requires {missing}, which verl does not pass"


def _is_plain(tree: ast.Module, node: ast.ClassDef) -> bool:
    """Return whether calling a class certainly calls the constructor in its body or its bases.

    In that case, nothing decorates, changes or makes the class otherwise.
    """
    made = {getattr(part, "name", "") for part in node.body}
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return (
        not (node.decorator_list or node.keywords or made & _MAKES_OBJECTS)
        and not _may_change(tree, node.name)
        and all(_is_known_base(tree, node, dotted(base)) for base in bases)
    )


def _is_known_base(tree: ast.Module, node: ast.ClassDef, base: str) -> bool:
    """Return whether a base of a class is one of torch's or verl's, or a plain class above it in the file."""
    own = lasting(tree).get(base)
    if isinstance(own, ast.ClassDef):
        return own.lineno < node.lineno and _is_plain(tree, own)
    first = base.partition(".")[0]
    counts, known = Counter(names_bound(tree)), Counter(_from_known(tree))
    return known[first] > 0 and counts[first] == known[first]


def _from_known(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module imports from torch and verl, each as often as it does."""
    for part in walk(tree):
        match part:
            case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] in _KNOWN:
                yield from names_bound(part)
            case ast.Import(names=names):
                yield from (
                    bound
                    for name in names
                    if name.name.partition(".")[0] in _KNOWN
                    for bound in names_bound(name)
                )


def _may_change(tree: ast.Module, name: str) -> bool:
    """Return whether a module may change a class after its definition.

    It may if it stores into the class or a constructor, or passes the class on.
    """
    for node in walk(tree):
        match node:
            case ast.Attribute(value=owner, attr=attribute, ctx=ast.Store() | ast.Del()):
                if attribute in _CONSTRUCTS or dotted(owner).partition(".")[0] == name:
                    return True
            case ast.Call(func=function, args=args, keywords=words) if dotted(function) not in _LOOK_ONLY:
                if any(
                    isinstance(part, ast.Name) and part.id == name
                    for part in (*args, *(word.value for word in words))
                ):
                    return True
    return False


def _passed_to_data_sets(program: Path) -> tuple[str, ...]:
    """Return the names of the arguments with which verl makes a data set; none if they are not certain."""
    places = (program, program.parent / "ppo/utils.py", program.parent / "main_ppo.py")
    for place in places:
        tree = parsed(place) if os.path.isfile(place) else None
        for node in walk(tree) if tree else ():
            if isinstance(node, ast.FunctionDef) and node.name in _MAKES_DATA_SETS:
                calls = [
                    part
                    for part in walk(node)
                    if isinstance(part, ast.Call) and dotted(part.func) == "dataset_cls"
                ]
                names = [word.arg for call in calls for word in call.keywords]
                sure = len(calls) == 1 and not calls[0].args and None not in names
                return tuple(name for name in names if name) if sure else ()
    return ()
