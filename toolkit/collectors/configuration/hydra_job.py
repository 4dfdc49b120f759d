"""A job's configuration: its program's files, composed, and the effect of each word of its command."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import (
    UNDETERMINED_VALUE,
    Configuration,
    OverrideWord,
    as_far_as_known,
    as_override,
)
from verl_doctor.toolkit.collectors.configuration.hydra_plugins import own_of_hydra
from verl_doctor.toolkit.collectors.configuration.hydra_program import (
    NotDetermined,
    Options,
    brings_own_parts,
    changes_configuration,
    decorator_of,
    folders_of,
    imported_decorator,
    options_of,
    program_file,
    search_path,
)
from verl_doctor.toolkit.collectors.configuration.named_variables import with_variables
from verl_doctor.toolkit.collectors.launch.launch import Command, Setting
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.hydra.compose import Composed, Sources, compose
from verl_doctor.toolkit.sources.hydra.defaults import CompositionError, NotFollowedError
from verl_doctor.toolkit.sources.hydra.grammar import Override
from verl_doctor.toolkit.sources.hydra.lookup import MISSING, lookup
from verl_doctor.toolkit.sources.python.source import read as read_source
from verl_doctor.toolkit.system.secret import setting_is_secret

_OF_VERL = ("trainer", "config")  # verl's own folder of configuration files


def composed(
    command: Command, verl: Path, machine: Machine, version: str, settings: Sequence[Setting] = ()
) -> Configuration | Unknown:
    """Compose the configuration of the command's program.

    `verl` is the folder of the tree, of this version, `settings` the job's variables.
    """
    try:
        return _composed(command, verl, machine, version, settings)
    except NotDetermined as reason:
        return Unknown(str(reason))


def _composed(
    command: Command, verl: Path, machine: Machine, version: str, settings: Sequence[Setting]
) -> Configuration | Unknown:
    folders = [machine.cwd, Path(command.path).parent, verl.parent]
    file = program_file(command.module, folders, verl)
    if file is None:
        return Unknown(f"the source of {command.module} was not found, so its configuration is not known")
    decorator = decorator_of(file) or imported_decorator(file, verl)
    if decorator is None:
        return Unknown(f"{file} has no @hydra.main with plain arguments, so its configuration is not known")
    options = options_of(command.words)
    searched = folders_of(decorator, options, verl, machine.cwd)
    name = (options.name or decorator.config_name or "").removesuffix(".yaml")
    if not name:
        return Unknown(f"{file} names no configuration")
    is_of_verl = file.is_relative_to(verl)
    own_parts = not is_of_verl and brings_own_parts(file)
    added = str(searched[-1]) if len(searched) > 1 else ""
    empty = Configuration(
        str(decorator.file), str(searched[0]), name, verl=version, own_parts=own_parts, added_folder=added
    )
    read, overrides = _read(options)
    if not is_of_verl and (line := changes_configuration(file)):
        read.append(
            OverrideWord("", str(file), line, "not told", why="the program changes the configuration")
        )
        overrides.append(None)
    own = own_of_hydra(verl.parent, command, machine, settings) if is_of_verl else None
    sources = Sources(searched, dict(command.written), own)
    of_hydra = {
        word.key: word.value
        for word in read
        if word.key.startswith("hydra/") and not word.sign and word.fate == "applied"
        if isinstance(word.value, str) and word.value != UNDETERMINED_VALUE
    }
    try:
        sources.folders = [*searched, *_more(sources, name, read, verl, machine.cwd)]
        tree = compose(sources, name, [override for override in overrides if override is not None], of_hydra)
    except CompositionError as problem:
        here = options.extra is not None and not options.extra.startswith("/")
        made = {Path(path).parent for path, _ in command.written}
        missing = next(
            (str(folder) for folder in searched if not os.path.isdir(folder) and folder not in made), ""
        )
        return replace(
            empty,
            overrides=tuple(read),
            refused=str(problem),
            missing_folder=missing,
            looked_here=here,
            missing_option=problem.missing,
            options=tuple(_options([*sources.folders, *filter(None, [sources.own])], problem.missing)),
            found_with=_found_with(problem.missing, name, read, verl),
        )
    except NotFollowedError as problem:
        return Unknown(f"verl-doctor does not follow {problem}")
    tree = replace(
        tree,
        before=with_variables(tree.before, machine.environ, settings),
        after=with_variables(tree.after, machine.environ, settings),
    )
    composition = _with(empty, tree, read, overrides)
    return replace(
        composition, overrides=tuple(_foreseen(word, composition, verl) for word in composition.overrides)
    )


def _found_with(missing: str, primary: str, words: Iterable[OverrideWord], verl: Path) -> str:
    """Return the entry of the search path with which Hydra finds a file in verl's own folder; "" for none.

    The primary file is not looked for there.
    """
    if missing in ("", primary) or any(word.key == "hydra.searchpath" for word in words):
        return ""
    is_of_verl = os.path.isfile(verl.joinpath(*_OF_VERL, f"{missing.removesuffix('.yaml')}.yaml"))
    return f"pkg://{'.'.join((verl.name, *_OF_VERL))}" if is_of_verl else ""


def _options(folders: Iterable[Path], missing: str) -> list[str]:
    """Return the available options of the group to which a missing file would belong."""
    group = missing.rpartition("/")[0]
    found = (file.stem for folder in folders for file in (folder / group).glob("*.yaml"))
    return sorted(set(found)) if group else []


def _foreseen(word: OverrideWord, configuration: Configuration, verl: Path) -> OverrideWord:
    """Distinguish invalid strings for a numeric key from valid ones, such as `test_freq=after_each_epoch`."""
    if word.fate != "applied" or not isinstance(word.value, str) or "${" in word.value:
        return word
    if not isinstance(configuration.default(word.key), (int, float)):
        return word
    leaf = word.key.rpartition(".")[2]
    compared = re.compile(rf"\b{re.escape(leaf)}\b.*[\"']{re.escape(word.value)}[\"']".encode())
    sources = map(read_source, sorted(verl.rglob("*.py")))
    return replace(word, foreseen=any(isinstance(text, bytes) and compared.search(text) for text in sources))


def _with(
    empty: Configuration, tree: Composed, read: list[OverrideWord], overrides: list[Override | None]
) -> Configuration:
    outcomes = iter(tree.outcomes)
    applied = [
        parsed if override is None else replace(parsed, fate=next(outcomes))
        for parsed, override in zip(read, overrides, strict=True)
    ]
    prefix = empty.folder + os.sep
    composed = replace(
        empty,
        overrides=tuple(applied),
        before=_without_secrets(tree.before),
        after=as_far_as_known(_without_secrets(tree.after), applied),
        deprecated=tree.deprecated,
        origins={key: place.removeprefix(prefix) for key, place in tree.origins.items()},
    )
    return replace(composed, added=tuple(sorted(key for key in tree.once if composed.own_line(key))))


def _without_secrets(tree: Any, key: str = "") -> Any:
    """Return the tree with possible secrets replaced: the user's own files may hold a tracker's key."""
    if isinstance(tree, Mapping):
        return {
            name: _without_secrets(inner, f"{key}.{name}" if key else str(name))
            for name, inner in tree.items()
        }
    if isinstance(tree, list):
        return [_without_secrets(inner, key) for inner in tree]
    if tree is None or isinstance(tree, bool) or not setting_is_secret(key, str(tree)):
        return tree
    return UNDETERMINED_VALUE


def _more(sources: Sources, name: str, words: Sequence[OverrideWord], verl: Path, cwd: Path) -> list[Path]:
    """Return the folders that `hydra.searchpath` adds, in the primary file or on the command line."""
    primary = sources.load(name)
    entries = (
        lookup(primary.content, "hydra.searchpath")
        if primary and isinstance(primary.content, dict)
        else MISSING
    )
    for word in words:
        if word.key == "hydra.searchpath":
            entries = word.value
    sources.read.clear()
    return search_path(entries, verl, cwd) if isinstance(entries, list) else []


def _read(options: Options) -> tuple[list[OverrideWord], list[Override | None]]:
    """Return each word as an override. None in the second list: it must not be applied."""
    read: list[OverrideWord] = []
    overrides: list[Override | None] = []
    for word in options.overrides:
        parsed, override = as_override(word, multirun=options.multirun)
        read.append(parsed)
        overrides.append(override)
    return read, overrides
