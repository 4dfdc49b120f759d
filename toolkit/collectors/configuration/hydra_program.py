"""The configuration that a Hydra program reads.

It comes from its `@hydra.main` decorator, read without running it, and Hydra's options.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from verl_doctor.toolkit.collectors.launch.launch import Word
from verl_doctor.toolkit.sources.python.source import dotted, parsed, walk

# Options of `hydra.main` without a value, and those with one.
_FLAGS = frozenset(
    {"--multirun", "-m", "--run", "-r", "--resolve", "--hydra-help", "--help", "-h", "--version"}
)
_VALUES = {
    "--config-path": "path",
    "-cp": "path",
    "--config-name": "name",
    "-cn": "name",
    "--config-dir": "extra",
    "-cd": "extra",
    "--cfg": "",
    "-c": "",
    "--package": "",
    "-p": "",
    "--info": "",
    "-i": "",
    "--experimental-rerun": "",
}


@dataclass(frozen=True)
class Decorator:
    """The arguments of `@hydra.main` on a function in `file`. `config_path` is None if it names no folder."""

    file: Path
    function: str
    config_path: str | None
    config_name: str | None


@dataclass(frozen=True)
class Options:
    """Hydra's own options on a command line, and the words that are overrides."""

    path: str | None = None
    name: str | None = None
    extra: str | None = None
    multirun: bool = False
    overrides: tuple[Word, ...] = ()


class NotDetermined(Exception):  # noqa: N818 - it is an answer
    """Raised if the command line or the source does not determine a value. The message is the reason."""


def program_file(module: str, folders: Iterable[Path], verl: Path) -> Path | None:
    """Return the source of a module ("verl.trainer.main_ppo") or script.

    `verl` is the package folder that `import verl` loads.
    """
    if module.endswith(".py") or "/" in module:
        candidates = [folder / module for folder in folders]
    else:
        steps = module.split(".")
        inside = [verl.joinpath(*steps[1:])] if steps[0] == "verl" else []
        places = [*inside, *(folder.joinpath(*steps) for folder in folders)]
        candidates = [
            path for place in places for path in (place.with_name(f"{place.name}.py"), place / "__main__.py")
        ]
    return next((path for path in candidates if os.path.isfile(path)), None)


def decorator_of(file: Path) -> Decorator | None:
    """Read the `@hydra.main(...)` of a program; None if it has none or the arguments are not literals."""
    tree = parsed(file)
    if tree is None:
        return None
    for node in walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and dotted(decorator.func) in ("hydra.main", "main"):
                    return _decorator(decorator, file, node.name)
    return None


def imported_decorator(file: Path, verl: Path) -> Decorator | None:
    """Read the decorator of the function of verl that a program imports to call it.

    An example of the import is `from verl.trainer.main_ppo import main`.
    """
    tree = parsed(file)
    if tree is None:
        return None
    called = {dotted(node.func) for node in walk(tree) if isinstance(node, ast.Call)}
    for node in walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level or not (node.module or "").startswith("verl."):
            continue
        functions = {alias.name for alias in node.names if (alias.asname or alias.name) in called}
        imported = program_file(node.module or "", [], verl) if functions else None
        found = decorator_of(imported) if imported else None
        if found is not None and found.function in functions:
            return found
    return None


_ROOTS = frozenset({"config", "cfg", "conf"})
_CHANGES = ("OmegaConf.update", "open_dict")
_MERGES = "OmegaConf.merge"
_PART = re.compile(r"(?:Trainer|Workers?|Dataset)$|^create_\w*dataset$")
_STARTS = re.compile(r"run_ppo$|main(?:_ppo\w*)?$|TaskRunner$")  # what builds all of them


def changes_configuration(file: Path) -> int:
    """Return the line at which a program changes its arguments or its configuration; 0 if it does not."""
    tree = parsed(file)
    if tree is None:
        return 0
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and dotted(node) == "sys.argv":
            return node.lineno
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name.endswith(_CHANGES) or (
                name.endswith(_MERGES) and any(map(_is_of_configuration, node.args))
            ):
                return node.lineno
        if (
            isinstance(node, (ast.Attribute, ast.Subscript))
            and isinstance(node.ctx, ast.Store)
            and _is_of_configuration(node)
        ):
            return node.lineno
    return 0


def brings_own_parts(file: Path) -> bool:
    """Return whether a program that is not verl's may train with its own trainer, workers or data set."""
    tree = parsed(file)
    if tree is None:
        return True
    defined, modules = False, set[str]()
    for node in walk(tree):
        defined = defined or (isinstance(node, ast.ClassDef) and _PART.search(node.name) is not None)
        if isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names = [alias.name for alias in node.names]
            modules |= {module for name in names if _PART.search(name) or _STARTS.match(name)}
    return defined or not modules or any(module.partition(".")[0] != "verl" for module in modules)


def _is_of_configuration(node: ast.AST) -> bool:
    """Return whether an expression is the configuration, or a part of it."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return isinstance(node, ast.Name) and node.id in _ROOTS


def _decorator(call: ast.Call, file: Path, function: str) -> Decorator | None:
    given = dict(zip(("config_path", "config_name"), call.args, strict=False))
    given.update({word.arg: word.value for word in call.keywords if word.arg})
    values = []
    for name in ("config_path", "config_name"):
        node = given.get(name, ast.Constant(None))
        if not isinstance(node, ast.Constant) or not isinstance(node.value, (str, type(None))):
            return None
        values.append(node.value)
    return Decorator(file, function, *values)


def options_of(words: Sequence[Word]) -> Options:
    """Separate Hydra's options from overrides. Raises NotDetermined if an option's value is unknown."""
    options = Options()
    overrides: list[Word] = []
    place = 0
    while place < len(words):
        word = words[place]
        text = word.text if word.text is not None else word.written
        place += 1
        option, equals, value = text.partition("=")
        if text in _FLAGS:
            options = replace(options, multirun=options.multirun or text in ("--multirun", "-m"))
        elif option in _VALUES and (equals or text in _VALUES):
            if not equals:
                follows = words[place] if place < len(words) else None
                place += 1
                value = follows.text if follows and follows.text is not None else ""
            if word.text is None or not value:
                raise NotDetermined(f"the value of {option} cannot be determined from the launch script")
            options = _with(options, _VALUES[option], value)
        else:
            overrides.append(word)
    return replace(options, overrides=tuple(overrides))


def _with(options: Options, name: str, value: str) -> Options:
    if name == "path":
        return replace(options, path=value)
    if name == "name":
        return replace(options, name=value)
    return replace(options, extra=value) if name == "extra" else options


def folders_of(decorator: Decorator, options: Options, verl: Path, cwd: Path) -> list[Path]:
    """Return the folders that Hydra searches, in order. Raises NotDetermined if the program names none."""
    named = options.path if options.path is not None else decorator.config_path
    folders = [] if named is None else [_folder(named, decorator.file.parent, verl)]
    if options.extra is not None:
        folders.append(cwd / options.extra)
    if not folders:
        raise NotDetermined(f"{decorator.file} names no folder of configuration files")
    return [Path(os.path.normpath(folder)) for folder in folders]


def search_path(entries: Iterable[str], verl: Path, cwd: Path) -> list[Path]:
    """Return the folders that `hydra.searchpath` refers to."""
    return [_folder(entry, cwd, verl) for entry in entries]


def _folder(named: str, base: Path, verl: Path) -> Path:
    if named.startswith("pkg://"):
        first, *rest = named.removeprefix("pkg://").replace("/", ".").split(".")
        if first != "verl":
            raise NotDetermined(f"the location of {named} is unknown")
        return verl.joinpath(*rest)
    return base / named.removeprefix("file://")
