"""How processes of a job without Ray are started: launcher options, and whether a launcher is needed."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.launch.launch import Launch, Word
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.sources.python.source import dotted, parsed, read, walk

_NEEDS_RANKS = b"initialize_global_process_group("
_COUNTED = ("torchrun", "torch.distributed.run")
_OLD = "torch.distributed.launch"  # which takes what torchrun takes, and an option of its own
_TORCHRUN = (*_COUNTED, _OLD)
_FLAGS = frozenset({"store_true", "help", "version"})


@dataclass(frozen=True)
class JobProcesses:
    """The launcher of a job without Ray.

    `needs_ranks`: the program reads RANK and WORLD_SIZE, which a launcher sets. `launcher` is its name, "" if
    there is none. `options` are those of torchrun by name, with underscores, None for a flag. `unknown` are
    options that the installed torchrun does not have, and `known` all that it has. `undetermined`: an option
    or its value is unknown.
    """

    needs_ranks: bool
    launcher: str = ""
    options: Mapping[str, str | None] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    read_from: str = ""
    undetermined: bool = False

    @property
    def counts_nodes(self) -> bool:
        """Return whether the launcher decides the number of nodes, whatever the trainer's settings name."""
        return self.needs_ranks and self.launcher in _COUNTED

    @property
    def nodes(self) -> int | None:
        """Return on how many nodes torchrun starts processes; None if unknown or a range."""
        given = self.options.get("nnodes", "1") or ""
        return int(given) if self.counts_nodes and not self.undetermined and given.isdigit() else None

    def world_size(self, usual: Mapping[str, str]) -> int | None:
        """Return how many processes torchrun starts on all nodes; None if unknown.

        `usual` are values of options that are not given.
        """
        if self.undetermined or self.launcher not in _COUNTED:
            return None
        nodes, each = ({**usual, **self.options}.get(name) or "" for name in ("nnodes", "nproc_per_node"))
        return int(nodes) * int(each) if nodes.isdigit() and each.isdigit() else None


@collector(kept=True)
def job_processes(
    configuration: Configuration, launch: Launch, interpreter: Interpreter
) -> JobProcesses | Unknown:
    """Read what the program needs from its source, and the launcher's options from torch."""
    command = launch.command
    if command is None or not configuration.program:
        return Absent("no command that starts training was found")
    source = read(Path(configuration.program))
    needs = isinstance(source, bytes) and _NEEDS_RANKS in source
    words = command.launcher
    names = [(word.text or "").rpartition("/")[2] for word in words[:3]]
    name = next((found for found in names if found in _TORCHRUN), names[0] if names else "")
    if name not in _TORCHRUN:
        return JobProcesses(needs, name)
    path = next(
        (
            found
            for entry in interpreter.sys_path
            if os.path.isfile(found := Path(entry, "torch", "distributed", "run.py"))
        ),
        None,
    )
    takes = dict(_options(path)) if path else {}
    if path and name == _OLD:
        takes |= {"use_env": True, **dict(_options(path.with_name("launch.py")))}
    given, unknown, undetermined = _given(words[names.index(name) + 1 :], takes)
    return JobProcesses(
        needs, name, given, tuple(unknown) if takes else (), tuple(takes), str(path or ""), undetermined
    )


def _options(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the names of torchrun's options, and whether each is a flag."""
    tree = parsed(path)
    for node in walk(tree) if isinstance(tree, ast.Module) else ():
        if isinstance(node, ast.Call) and dotted(node.func).endswith(".add_argument"):
            actions = {
                word.value.value
                for word in node.keywords
                if word.arg == "action" and isinstance(word.value, ast.Constant)
            }
            for argument in node.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("-"):
                    yield str(argument.value).lstrip("-").replace("-", "_"), bool(actions & _FLAGS)


def _given(words: Sequence[Word], takes: Mapping[str, bool]) -> tuple[dict[str, str | None], list[str], bool]:
    given: dict[str, str | None] = {}
    unknown: list[str] = []
    undetermined = False
    place = 0
    while place < len(words):
        text = words[place].text
        place += 1
        if text is None:
            undetermined = True
            continue
        if not text.startswith("-"):
            continue
        written, equals, value = text.partition("=")
        name = written.lstrip("-").replace("-", "_")
        if name in ("m", "module") and not equals:
            continue
        near = [option for option in takes if option.startswith(name)] if name not in takes else [name]
        if len(near) != 1 and name not in ("h", "help"):
            unknown.append(written)
        elif takes[near[0]]:
            given[near[0]] = None
            continue
        if equals:
            given[near[0] if near else name] = value
        elif place < len(words):
            given[near[0] if near else name] = words[place].text
            undetermined = undetermined or words[place].text is None
            place += 1
    return given, unknown, undetermined
