"""Configuration keys for which verl's dataclasses have no field, read from their sources."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.config_classes import Refused
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration, OverrideWord
from verl_doctor.toolkit.sources.python.answers import External, Present
from verl_doctor.toolkit.sources.python.resolve import Sources
from verl_doctor.toolkit.sources.python.source import SourceTree, dotted, read
from verl_doctor.toolkit.sources.python.symbols import Attribute, Class

_WITHOUT_FIELDS = frozenset({"collections.abc.Mapping", "object", "abc.ABC"})
_DEEPEST = 10
_IMPORT = re.compile(rb"^[ \t]*(?:from|import)\b.*", re.MULTILINE)
_ENGINES = frozenset({"megatron", "mcore", "veomni", "torchtitan", "automodel", "mindspeed"})
"""Folders with code of training engines other than FSDP."""
_MAKES = re.compile(rb"omega_conf_to_dataclass\(\s*(?:self\.)?config\.([\w.]+)")
_CONVERTS = re.compile(rb"omega_conf_to_dataclass\(\s*model_config,\s*dataclass_type=")
_NEW_WORKERS = frozenset({"engine_workers.py"})
_LEGACY_WORKERS = frozenset({"fsdp_workers.py", "megatron_workers.py"})
_ROLLOUT, _MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"
_NEWLINE = b"\n"


def refused_keys(configuration: Configuration, folder: Path, module: str) -> Iterator[Refused]:
    """Yield appended keys that a class does not accept, in the tree in `folder`, imported as `module`."""
    tree = SourceTree(folder, module, "verl")
    found = list(_refused(configuration, Sources([tree])))
    made = list(_made(tree, configuration)) if found else []
    for refused in found:
        place = next((place for name, place in made if _concerns(name, refused.section)), "")
        if place:
            yield replace(refused, read_from=place)


def retyped(configuration: Configuration) -> Iterator[str]:
    """Yield the keys whose new value has another type than the default."""
    for word in configuration.overrides:
        default = configuration.default(word.key) if word.fate == "applied" and word.key else MISSING
        if default is not MISSING and word.value is not None and not isinstance(word.value, type(default)):
            yield word.key


def converted_keys(configuration: Configuration, folder: Path) -> Iterator[str]:
    """Yield the model section's keys set by the script, if the rollout's server converts it to its class."""
    name = configuration.get(f"{_ROLLOUT}.name")
    servers = sorted((folder / "workers" / "rollout" / f"{name}_rollout").glob("*server.py"))
    sources = (read(path) for path in servers)
    if any(isinstance(source, bytes) and _CONVERTS.search(source) for source in sources):
        for word in configuration.overrides:
            if (
                word.fate == "applied"
                and word.key.rpartition(".")[0] == _MODEL
                and configuration.has(word.key)
            ):
                yield word.key


def declared_types(
    configuration: Configuration, keys: Iterable[str], folder: Path, module: str
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the types that classes declare for these keys."""
    sources = Sources([SourceTree(folder, module, "verl")])
    for key in keys:
        annotation = _annotation(key, configuration, sources)
        if annotation is not None and (types := _types(annotation)):
            yield key, types


def unread_keys(
    configuration: Configuration, keys: Iterable[str], folder: Path, module: str
) -> tuple[str, ...]:
    """Return those keys whose name no code reads, except configuration classes and other training engines."""
    left = {key: {name for name in key.split(".")[1:] if not name.isdigit()} for key in keys}
    names = set().union(*left.values())
    if not names:
        return ()
    used = {
        configuration.get(key)
        for key in ("actor_rollout_ref.actor.strategy", "critic.strategy", "engine.strategy")
    }
    engines = _ENGINES - {str(name).rstrip("2") for name in used}
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    # That it begins with a character makes it six times as fast as if it began by looking behind.
    pattern = re.compile(rf"[.\"'](?:(?<=[\w)\]]\.)|(?<=[\"']))({either})\b".encode())
    plain = {key for key in left if key.startswith("trainer.") and key.count(".") == 1}
    read_names: set[str] = set()
    for path in SourceTree(folder, module, "verl").files():
        parts = path.relative_to(folder).parts
        source = b"" if "config" in parts or not engines.isdisjoint(parts) else read(path)
        left_names = names - read_names | {key.rpartition(".")[2] for key in plain}
        if isinstance(source, bytes) and any(name.encode() in source for name in left_names):
            code = _IMPORT.sub(b"", source)
            read_names.update(name.decode() for name in pattern.findall(code))
            plain -= {key for key in plain if _of_trainer(key).search(code)}
            if names <= read_names and not plain:
                break
    return tuple(key for key, steps in left.items() if not steps <= read_names or key in plain)


@functools.cache
def _of_trainer(key: str) -> re.Pattern[bytes]:
    """How code reads a setting of the trainer: names such as `seed` are attributes of much else, too."""
    leaf = re.escape(key.rpartition(".")[2])
    return re.compile(rf"trainer\w*(?:\.{leaf}\b|(?:\.get\(|\[|, )[\"']{leaf}\b)".encode())


def _annotation(key: str, configuration: Configuration, sources: Sources) -> ast.expr | None:
    """Return the annotation of a key's field, found through the innermost section that names a class."""
    steps = key.split(".")
    for end in range(len(steps) - 1, 0, -1):
        target = configuration.default(f"{'.'.join(steps[:end])}._target_")
        if not isinstance(target, str):
            continue
        found = sources.resolve(target)
        for place, step in enumerate(steps[end:], end + 1):
            field = (
                _field(found.definition, step, sources)
                if isinstance(found, Present) and isinstance(found.definition, Class)
                else None
            )
            if field is None or not field.annotation:
                return None
            annotation = ast.parse(field.annotation, mode="eval").body
            if place == len(steps):
                return annotation
            names = [name for name in _types(annotation) if name != "None"]
            if len(names) != 1:
                return None
            found = sources.resolve(f"{field.module}.{names[0]}")
    return None


def _field(owner: Class, name: str, sources: Sources, depth: int = 0) -> Attribute | None:
    """Return a field of a dataclass or of its bases."""
    member = owner.members.get(name)
    if isinstance(member, Attribute):
        return member
    for base in owner.bases if depth < _DEEPEST else ():
        found = sources.resolve(f"{owner.module}.{base}")
        if isinstance(found, Present) and isinstance(found.definition, Class):
            above = _field(found.definition, name, sources, depth + 1)
            if above is not None:
                return above
    return None


def _types(annotation: ast.expr) -> tuple[str, ...]:
    """Return the names of the types in a union; empty if the annotation is anything else."""
    match annotation:
        case ast.Constant(value=None):
            return ("None",)
        case ast.Name() | ast.Attribute():
            return (dotted(annotation).rpartition(".")[2],)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            parts = [_types(left), _types(right)]
            return tuple(name for part in parts for name in part) if all(parts) else ()
        case ast.Subscript(value=generic, slice=inner):
            match dotted(generic).rpartition(".")[2]:
                case "Optional":
                    return (*_types(inner), "None") if _types(inner) else ()
                case "Union" if isinstance(inner, ast.Tuple):
                    parts = [_types(part) for part in inner.elts]
                    return tuple(name for part in parts for name in part) if all(parts) else ()
                case "list" | "dict" | "List" | "Dict" | "Sequence" | "Mapping" as name:
                    return (name.lower(),)
    return ()


def _made(tree: SourceTree, configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Yield the sections that verl converts to objects: the last part of a section's name, and the place."""
    unused = _unused_workers(configuration)
    for path in tree.files():
        source = read(path) if path.name not in unused else b""
        if isinstance(source, bytes):
            for match in _MAKES.finditer(source):
                yield match[1].decode(), f"{path}:{source.count(_NEWLINE, 0, match.start()) + 1}"


def _unused_workers(configuration: Configuration) -> frozenset[str]:
    """Return the files of workers that the job does not use.

    They exist where verl has two kinds of workers (verl/trainer/main_ppo.py, 0.6 and 0.7).
    """
    chosen = configuration.get("trainer.use_legacy_worker_impl")
    if chosen == "disable":
        return _LEGACY_WORKERS
    has_legacy = configuration.get("actor_rollout_ref.actor.strategy") in ("fsdp", "fsdp2", "megatron")
    return _NEW_WORKERS if chosen in ("auto", "enable") and has_legacy else frozenset()


def _concerns(name: str, section: str) -> bool:
    """Return whether an object made of `name` contains the section, as all below it is converted with it."""
    return f".{name}." in f".{section}."


def _refused(configuration: Configuration, sources: Sources) -> Iterator[Refused]:
    for word, section, name in _appended(configuration):
        target = configuration.default(f"{section}._target_") if section else None
        if not name or not isinstance(target, str):
            continue
        found = sources.resolve(target)
        if not isinstance(found, Present) or not isinstance(found.definition, Class):
            continue
        fields = _fields(found.definition, sources)
        if fields is not None and name not in fields:
            yield Refused(word, section, name, target)


def _appended(configuration: Configuration) -> Iterator[tuple[OverrideWord, str, str]]:
    """Yield what the command and the user's own files append, with the section and the name in it.

    No fix edits those files.
    """
    for word in configuration.overrides:
        if word.fate == "applied" and word.sign in ("+", "++"):
            yield word, *_section(word.key, configuration)
    for key in configuration.added:
        section, _, name = key.rpartition(".")
        if own := configuration.own_line(key):
            path, line = own
            yield (
                OverrideWord(f"{name}: {configuration.default(key)}", path, line, "not told", key=key),
                section,
                name,
            )


def _fields(owner: Class, sources: Sources, depth: int = 0) -> frozenset[str] | None:
    """Return the fields of a dataclass and its bases; None if they are unknown."""
    if depth > _DEEPEST or owner.open or not any("dataclass" in decorator for decorator in owner.decorators):
        return None
    names = {name for name, member in owner.members.items() if isinstance(member, Attribute) and member.field}
    for base in owner.bases:
        found = sources.resolve(f"{owner.module}.{base}")
        if not isinstance(found, Present):
            return None
        if isinstance(found.definition, External) and found.definition.dotted in _WITHOUT_FIELDS:
            continue
        above = _fields(found.definition, sources, depth + 1) if isinstance(found.definition, Class) else None
        if above is None:
            return None
        names |= above
    return frozenset(names)


def _section(key: str, configuration: Configuration) -> tuple[str, str]:
    """Return verl's innermost section around a key, and what is new in it; empty if the key exists."""
    steps = key.split(".")
    for end in range(len(steps) - 1, 0, -1):
        section = ".".join(steps[:end])
        found = configuration.default(section)
        if isinstance(found, Mapping):
            return (section, steps[end]) if steps[end] not in found else ("", "")
    return "", ""
