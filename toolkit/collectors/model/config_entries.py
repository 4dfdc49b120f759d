"""Entries of the model's config.json that the installed transformers or verl refuses, by their sources."""

from __future__ import annotations

import ast
import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.roles import has_external_module
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.model.model import BadFile, Model, read_json
from verl_doctor.toolkit.collectors.model.support import MODEL_TYPES, transformers_folder
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.evaluate import RAISES, UNCLEAR, returned
from verl_doctor.toolkit.sources.python.source import dotted, parsed, read, walk
from verl_doctor.toolkit.target import Target
from verl_doctor.toolkit.text import without_middle

_BASE = "configuration_utils.py"
_ROPE = "modeling_rope_utils.py"
_ACTIVATIONS = "activations.py"
_VERL = "workers/config/model.py"
_SECTIONS = ("actor_rollout_ref.model.override_config", "model.override_config")
_ACTIVATION = re.compile(rb"ACT2FN\[(?:self\.)?config\.(hidden_act|hidden_activation|activation_function)\]")
_ONE_ARCHITECTURE = re.compile(rb"assert [^\n]*\blen\(self\.architectures\) == 1")
_BY_NAME = (
    b"for pattern in sorted(CONFIG_MAPPING"  # an older transformers finds the type in the folder's name
)
# What transformers fills in where config.json does not give it.
_FILLED = frozenset({"rope_type", "rope_theta", "original_max_position_embeddings"})
_OWN_ROPE = frozenset(
    {"validate_rope", "convert_rope_params_to_dict", "standardize_rope_params", "rope_scaling"}
)
_SIMPLE: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float,),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
}


@dataclass(frozen=True)
class BadEntry:
    """A refused entry: its value as text, what is accepted instead, and where that was read.

    The place has the form "path:line".

    `nearest` is the accepted value that may have been meant, "" for none.
    """

    name: str
    found: str
    wanted: str
    read_from: str
    nearest: str = ""


@dataclass(frozen=True)
class ConfigEntries:
    """The refused entries of the config.json in `folder`."""

    folder: str
    bad: tuple[BadEntry, ...] = ()


@collector(kept=True)
def config_entries(
    model: Model,
    target: Target,
    interpreter: Interpreter | Unknown,
    verl: VerlTrees | Unknown,
    configuration: Configuration | Unknown,
) -> ConfigEntries | Unknown:
    """Judge what config.json has by the class of the model's type, and by the modules that read it."""
    config = read_json(Path(model.folder, "config.json"))
    if isinstance(config, BadFile) or not model.is_described:
        return Absent("the model has no readable config.json")
    if model.own_code:
        return Absent("the model has its own code")
    if isinstance(configuration, Configuration) and has_external_module(configuration):
        return Absent("a module of the job may register types of models")
    root = transformers_folder(target, interpreter)
    if root is None:
        return Absent("transformers is not installed in this environment")
    overridden = _overridden(configuration)
    found = list(_of_transformers(root, model, config, overridden))
    names = {bad.name for bad in found}
    if isinstance(verl, VerlTrees):
        found += (bad for bad in _of_verl(Path(verl.imported.folder), config) if bad.name not in names)
    return ConfigEntries(model.folder, tuple(found))


def _overridden(configuration: Configuration | Unknown) -> frozenset[str]:
    """Return the entries that the job replaces after they were read."""
    sections = [] if isinstance(configuration, Unknown) else [configuration.get(key) for key in _SECTIONS]
    return frozenset(str(name) for section in sections if isinstance(section, dict) for name in section)


def _of_verl(folder: Path, config: Mapping[str, Any]) -> Iterator[BadEntry]:
    """Yield a number of architectures that verl refuses."""
    path = folder / _VERL
    source = read(path) if os.path.isfile(path) else b""
    match = _ONE_ARCHITECTURE.search(source) if isinstance(source, bytes) else None
    given = config.get("architectures")
    if (
        match
        and isinstance(source, bytes)
        and (given is None or (isinstance(given, list) and len(given) != 1))
    ):
        line = source.count(b"\n", 0, match.start()) + 1
        found = _shown(given) if "architectures" in config else "missing"
        yield BadEntry("architectures", found, "a list of exactly one name", f"{path}:{line}")


def _of_transformers(
    root: Path, model: Model, config: Mapping[str, Any], overridden: frozenset[str]
) -> Iterator[BadEntry]:
    if not model.model_type:
        yield from _without_type(root, model, config)
        return
    if model.model_type == "mistral" and "layer_types" in config:
        return  # transformers 5 reads it as another type
    chain = _Chain.of(root, model.model_type)
    if chain is None:
        return
    yield from _of_other_types(chain, config)
    yield from _layer_types(root, chain, config)
    yield from _validated(chain, config)
    left = {name: value for name, value in config.items() if name not in overridden}
    yield from _activations(root, chain, left)
    yield from _rope(root, chain, left)


def _without_type(root: Path, model: Model, config: Mapping[str, Any]) -> Iterator[BadEntry]:
    path = root / MODEL_TYPES[0]
    source = read(path)
    if isinstance(source, bytes) and b"Should have a `model_type` key" in source:
        line = source.count(b"\n", 0, source.index(b"Should have a `model_type` key")) + 1
        known = set() if _BY_NAME not in source else {name for name, _ in _pairs(root)}
        if "model_type" not in config and not any(name in model.folder for name in known):
            yield BadEntry("model_type", "missing", "the type of the model", f"{path}:{line}")


def _pairs(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of texts in the tables of model types: a type and its class, or its module."""
    for name in MODEL_TYPES:
        tree = parsed(root / name)
        for node in walk(tree) if tree else ():
            match node:
                case ast.Tuple(elts=[ast.Constant(value=str(key)), ast.Constant(value=str(value))]):
                    yield key, value
                case ast.Dict(keys=keys, values=values):
                    for key_node, value_node in zip(keys, values, strict=True):
                        match key_node, value_node:
                            case ast.Constant(value=str(key)), ast.Constant(value=str(value)):
                                yield key, value


@dataclass(frozen=True)
class _Chain:
    """The class of a model's type and its bases, as far as transformers defines them, each with its file.

    `folder` is the type's.
    """

    folder: Path
    classes: tuple[tuple[ast.ClassDef, Path], ...]
    fields: Mapping[str, tuple[ast.expr, ast.expr | None, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path, model_type: str) -> _Chain | None:
        """Find the class in the folder of its type. None if it is not defined there."""
        values = [value for key, value in _pairs(root) if key == model_type]
        name = next((value for value in values if value.endswith("Config")), "")
        modules = [value for value in values if os.path.isdir(root / "models" / value)]
        folder = root / "models" / (modules[0] if modules else model_type.replace("-", "_"))
        for path in sorted(folder.glob("configuration_*.py")) if name else ():
            if classes := tuple(_with_bases(name, path, 0)):
                found: dict[str, tuple[ast.expr, ast.expr | None, str]] = {}
                for owner, where in classes:
                    for node in owner.body:
                        match node:
                            case ast.AnnAssign(target=ast.Name(id=entry), annotation=kind, value=default):
                                found.setdefault(entry, (kind, default, f"{where}:{node.lineno}"))
                return cls(folder, classes, found)
        return None

    @property
    def is_strict(self) -> bool:
        """Whether the class checks the type of each value given to it, and nothing converts it before."""
        names = {
            dotted(part.func if isinstance(part, ast.Call) else part)
            for part in self.classes[0][0].decorator_list
        }
        return "strict" in names and "__init__" not in self.methods()

    def methods(self) -> Mapping[str, tuple[ast.FunctionDef, Path]]:
        """Return the methods by name; those of the class hide those of its bases."""
        found: dict[str, tuple[ast.FunctionDef, Path]] = {}
        for owner, path in self.classes:
            for node in owner.body:
                if isinstance(node, ast.FunctionDef):
                    found.setdefault(node.name, (node, path))
        return found

    def own(self) -> tuple[ast.ClassDef, ...]:
        """Return the classes of models, without those on which all of them stand."""
        return tuple(owner for owner, path in self.classes if path.parent.parent.name == "models")

    def keeps(self, entry: str) -> bool:
        """Return whether no class of the model replaces a value that config.json gives for this entry."""
        return not any(
            _assigns(node, entry) and not guarded
            for owner in self.own()
            for node, guarded in _with_guards(owner, entry, guarded=False)
        )

    def value(self, config: Mapping[str, Any], entry: str) -> Any:
        """Return what an entry is after the class has read it, `UNCLEAR` if that cannot be determined."""
        if not self.keeps(entry):
            return UNCLEAR
        if config.get(entry) is not None:
            return config[entry]
        default = self.fields[entry][1] if entry in self.fields and entry not in config else None
        guarded = any(_assigns(node, entry) for owner in self.own() for node in walk(owner))
        return default.value if isinstance(default, ast.Constant) and not guarded else UNCLEAR


def _with_bases(name: str, path: Path, depth: int) -> Iterator[tuple[ast.ClassDef, Path]]:
    """Yield a class and its bases, depth first."""
    tree = parsed(path) if depth < 8 and os.path.isfile(path) else None
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield node, path
            for base in node.bases:
                yield from _with_bases(dotted(base), path, depth + 1)
        elif isinstance(node, ast.ImportFrom) and node.level and node.module and name in _imported(node):
            other = path.parents[node.level - 1] / f"{node.module.replace('.', '/')}.py"
            yield from _with_bases(name, other, depth + 1)


def _imported(node: ast.ImportFrom) -> set[str]:
    return {alias.name for alias in node.names if alias.asname is None}


def _with_guards(node: ast.AST, entry: str, *, guarded: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Yield the nodes below, each with whether it only runs if the entry is None."""
    for child in ast.iter_child_nodes(node):
        yield child, guarded
        inner = guarded or (isinstance(child, ast.If) and f"self.{entry} is None" in ast.unparse(child.test))
        yield from _with_guards(child, entry, guarded=inner)


def _assigns(node: ast.AST, entry: str) -> bool:
    """Return whether a statement gives `self.entry` a value other than its namesake's.

    The namesake is the parameter or attribute of the same name.
    """
    match node:
        case ast.Assign(targets=targets, value=value):
            pass
        case ast.AnnAssign(target=target, value=value) | ast.AugAssign(target=target, value=value):
            targets = [target]
        case ast.Call(func=ast.Name(id="setattr")):
            return True
        case _:
            return False
    return (
        any(dotted(target) == f"self.{entry}" for target in targets)
        and dotted(value) != entry
        and not (
            isinstance(value, ast.IfExp)
            and dotted(value.body) == f"self.{entry}"
            and "is not None" in ast.unparse(value.test)
        )
    )


def _of_other_types(chain: _Chain, config: Mapping[str, Any]) -> Iterator[BadEntry]:
    """Yield the values whose type the class refuses."""
    if not chain.is_strict:
        return
    for name, value in config.items():
        kind, _, where = chain.fields.get(name, (None, None, ""))
        if kind is not None and name not in ("dtype", "torch_dtype") and _takes(kind, value) is False:
            yield BadEntry(name, _shown(value), ast.unparse(kind), where)


def _takes(kind: ast.expr, value: Any) -> bool | None:
    """Return whether an annotation admits a value (`huggingface_hub.dataclasses.strict`), None if unclear."""
    match kind:
        case ast.Constant(value=None):
            return value is None
        case ast.Name(id="Any"):
            return True
        case ast.Name(id=name) if name in _SIMPLE:
            return isinstance(value, _SIMPLE[name]) and not (name == "int" and isinstance(value, bool))
        case ast.Name(id="RopeParameters"):  # a dictionary with types
            return None if isinstance(value, dict) else False
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _any([_takes(left, value), _takes(right, value)])
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return True if value is None else _takes(inner, value)
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=parts)):
            return _any([_takes(part, value) for part in parts])
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            if not isinstance(value, list):
                return False
            found = [_takes(inner, item) for item in value]
            return False if False in found else None if None in found else True
        case ast.Subscript(value=ast.Name(id="dict")):
            return None if isinstance(value, dict) else False
    return None


def _any(found: Sequence[bool | None]) -> bool | None:
    return True if True in found else None if None in found else False


def _layer_types(root: Path, chain: _Chain, config: Mapping[str, Any]) -> Iterator[BadEntry]:
    """Yield kinds of layers unknown to transformers, and their number if it is not that of the layers."""
    given = config.get("layer_types")
    kinds = _constant(root / _BASE, "ALLOWED_LAYER_TYPES")
    is_read = "layer_types" in chain.fields or "layer_types" in _parameters(chain)
    if not isinstance(given, list) or kinds is None or not is_read or not chain.keeps("layer_types"):
        return
    methods = chain.methods()
    method, where = methods.get("validate_layer_type", (None, root / _BASE))
    text = "\n".join(ast.unparse(owner) for owner in chain.own())
    checks_count = "layer_type_validation(self.layer_types, self.num_hidden_layers)" in text
    if method is not None and where == root / _BASE and chain.is_strict:
        checks_count = True
    elif method is not None or "layer_type_validation(self.layer_types" not in text:
        return
    known, line = kinds
    unknown = next((kind for kind in given if kind not in known), None)
    layers = chain.value(config, "num_hidden_layers")
    if unknown is not None:
        wanted = f"layers of the kinds {', '.join(known[:4])} ..."
        yield BadEntry(
            "layer_types", _shown(unknown), wanted, f"{root / _BASE}:{line}", _near(str(unknown), known)
        )
    elif checks_count and type(layers) is int and layers != len(given):
        wanted = f"{layers} entries, as many as num_hidden_layers"
        yield BadEntry("layer_types", f"{len(given)} entries", wanted, f"{root / _BASE}:{line}")


def _parameters(chain: _Chain) -> set[str]:
    method, _ = chain.methods().get("__init__", (None, None))
    return {argument.arg for argument in method.args.args} if method else set()


def _validated(chain: _Chain, config: Mapping[str, Any]) -> Iterator[BadEntry]:
    """Yield what a `validate_` method of the model's class refuses.

    Such methods are called for strict classes alone.
    """
    for name, (method, path) in chain.methods().items() if chain.is_strict else ():
        if not name.startswith("validate_") or path.parent.parent.name != "models":
            continue
        entries = sorted(
            {
                dotted(node)[5:]
                for node in walk(method)
                if isinstance(node, ast.Attribute) and dotted(node).startswith("self.")
            }
        )
        values = {f"self.{entry}": chain.value(config, entry) for entry in entries}
        known = {key.replace(".", "__"): value for key, value in values.items() if value is not UNCLEAR}
        plain = ast.parse(ast.unparse(method).replace("self.", "self__")).body[0]
        if isinstance(plain, ast.FunctionDef) and returned(plain, known, lambda *_: UNCLEAR) is RAISES:
            numbers = [f"{entry}={_shown(values[f'self.{entry}'])}" for entry in entries]
            where = f"{path}:{method.lineno}"
            yield BadEntry(
                entries[0], ", ".join(numbers), f"what {chain.classes[0][0].name}.{name} accepts", where
            )


def _activations(root: Path, chain: _Chain, config: Mapping[str, Any]) -> Iterator[BadEntry]:
    """Yield activations that transformers does not have, where the model's own module looks them up."""
    table = _constant(root / _ACTIVATIONS, "ACT2CLS")
    source = _modeling(chain)
    for name in sorted({match.decode() for match in _ACTIVATION.findall(source)}) if table else ():
        value = config.get(name)
        if table and isinstance(value, str) and value not in table[0] and chain.keeps(name):
            wanted = f"one of {', '.join(table[0][:4])} ..."
            yield BadEntry(
                name, _shown(value), wanted, f"{root / _ACTIVATIONS}:{table[1]}", _near(value, table[0])
            )


def _rope(root: Path, chain: _Chain, config: Mapping[str, Any]) -> Iterator[BadEntry]:
    """Yield a way to scale positions that transformers does not have, or that lacks a number."""
    name = next((name for name in ("rope_scaling", "rope_parameters") if config.get(name)), "")
    given = config.get(name)
    table = _constant(root / _ROPE, "ROPE_INIT_FUNCTIONS")
    own = {node.name for owner in chain.own() for node in owner.body if isinstance(node, ast.FunctionDef)}
    if (
        not isinstance(given, dict)
        or any(isinstance(value, dict) for value in given.values())
        or table is None
    ):
        return
    kind = given.get("rope_type", given.get("type", "default"))
    source = _modeling(chain)
    texts = b"".join(
        text
        for _, path in chain.classes
        if isinstance(text := read(path), bytes) and path.parent == chain.folder
    )
    if not isinstance(kind, str) or re.search(rb"[\"']%b[\"']" % kind.encode(), texts + source):
        return
    if own & _OWN_ROPE or b"ROPE_INIT_FUNCTIONS[" not in source:
        return
    if kind not in (*table[0], "default"):
        wanted = f"one of {', '.join(table[0])}"
        yield BadEntry(
            f"{name}.rope_type", _shown(kind), wanted, f"{root / _ROPE}:{table[1]}", _near(kind, table[0])
        )
        return
    is_checked = chain.is_strict and "rope_parameters" in chain.fields
    if is_checked or b"rope_config_validation(self" in texts:
        for entry, where in dict(_required(root / _ROPE, kind)).items():
            if entry not in given and entry not in _FILLED:
                yield BadEntry(f"{name}.{entry}", "missing", f"a value, which {kind} needs", where)


def _required(path: Path, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers without which transformers refuses a kind of scaling, and where that is written."""
    tree = parsed(path)
    names = (f"_validate_{kind}_rope_parameters", f"_validate_{kind}_parameters")
    for function in walk(tree) if tree else ():
        if isinstance(function, ast.FunctionDef) and function.name in names:
            for node in function.body:
                match node:
                    case ast.Assign(targets=[ast.Name(id="required_keys")], value=ast.Set(elts=parts)):
                        for part in parts:
                            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                                yield part.value, f"{path}:{node.lineno}"


def _modeling(chain: _Chain) -> bytes:
    """Return the text of the model's module, which stands beside that of its configuration."""
    name = chain.classes[0][1].name.replace("configuration_", "modeling_", 1)
    source = read(chain.folder / name) if os.path.isfile(chain.folder / name) else b""
    return source if isinstance(source, bytes) else b""


def _near(value: str, known: Sequence[str]) -> str:
    return "".join(difflib.get_close_matches(value, known, n=1, cutoff=0.5))


def _constant(path: Path, name: str) -> tuple[tuple[str, ...], int] | None:
    """Return the texts of a tuple or the keys of a dictionary that a module defines, and its line.

    The result is None if it has others.
    """
    tree = parsed(path) if os.path.isfile(path) else None
    found: list[ast.expr | None] = []
    line = 0
    for node in tree.body if tree else ():
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AnnAssign)
            else []
        )
        if any(dotted(target) == name for target in targets) and isinstance(
            node, (ast.Assign, ast.AnnAssign)
        ):
            value, line = node.value, node.lineno
            found = (
                list(value.elts)
                if isinstance(value, ast.Tuple)
                else list(value.keys)
                if isinstance(value, ast.Dict)
                else []
            )
    texts = tuple(
        part.value for part in found if isinstance(part, ast.Constant) and isinstance(part.value, str)
    )
    return (texts, line) if texts and len(texts) == len(found) else None


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else "null" if value is None else str(value)
    return without_middle(text, 60)
