"""Follows a configuration through verl: `validate_config`, section classes, then what the job calls later."""

from __future__ import annotations

import ast
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.configuration.validation.advantage import Estimator, read_estimator
from verl_doctor.toolkit.collectors.configuration.validation.nearest_accepted import Judge, with_nearest
from verl_doctor.toolkit.collectors.configuration.validation.parts import ALGORITHMS_FILE, ROLLOUT
from verl_doctor.toolkit.collectors.configuration.validation.steps import Step, steps_of
from verl_doctor.toolkit.collectors.configuration.validation.validation import Raised, Validation
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees, VllmTree
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Phase
from verl_doctor.toolkit.sources.python.definitions import Definitions, Modules
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.refusals.follower import Follower
from verl_doctor.toolkit.sources.python.refusals.refused import NotFollowedError, RefusedError
from verl_doctor.toolkit.sources.python.source import SourceTree, parsed

# Whose arguments verl takes from the configuration, and the library that checks them.
_LIBRARIES = (
    ("torch.optim", "torch/optim"),
    ("torch.utils.data", "torch/utils/data"),
    ("torchdata", "torchdata"),
)
_WORLD = ("torch.distributed.get_world_size", "dist.get_world_size")


def read_validation(
    configuration: Configuration,
    trees: VerlTrees,
    vllm: VllmTree | Unknown,
    interpreter: Interpreter | Unknown,
    processes: JobProcesses | Unknown,
) -> Validation:
    """Follow the program's file: its calls, the classes it instantiates, then what the job calls later."""
    verl = SourceTree(Path(trees.imported.folder), trees.imported.module, "verl")
    sources = [verl]
    if not isinstance(vllm, Unknown):
        sources.append(SourceTree(Path(vllm.tree.folder), "vllm"))
    if not isinstance(interpreter, Unknown):
        for library, inner in _LIBRARIES:
            folders = (Path(entry, inner) for entry in interpreter.sys_path)
            sources += [SourceTree(folder, library) for folder in folders if os.path.isdir(folder)][:1]
    program = Path(configuration.program)
    module = verl.name_of(program)
    tree = parsed(program)
    if module is None or tree is None:
        return Validation()
    run = _Run(tree, module, verl, sources, processes, configuration)
    refusals: dict[Raised, Judge] = {}
    for step in run.steps(configuration):
        raised = run.raised(configuration, step)
        if raised is not None:
            raised = replace(raised, library=_library(raised, sources[1:]))
        if raised is not None and raised not in refusals:
            refusals[raised] = partial(run.raised, step=step)
    known = frozenset(raised.read_from for raised in refusals)
    nearest = {
        raised: with_nearest(raised, configuration, judge, lambda changed: run.places(changed) <= known)
        for raised, judge in refusals.items()
    }
    return Validation(tuple(nearest.values()))


@dataclass(frozen=True)
class _Run:
    """The program with its sources, to follow configurations through it: the job's own, and changed ones."""

    tree: ast.Module
    module: str
    verl: SourceTree
    sources: Sequence[SourceTree]
    processes: JobProcesses | Unknown
    configuration: Configuration
    modules: Modules = field(default_factory=dict)

    def steps(self, configuration: Configuration) -> Iterator[Step]:
        """Yield what the job runs with a configuration."""
        yield from steps_of(self.tree, self.module, self.verl, self.estimator, configuration)

    def raised(self, changed: Configuration, step: Step) -> Raised | None:
        """Return what a step raises with a configuration."""
        world = _world(changed, self.processes)
        follower = Follower(
            self.sources,
            changed.get,
            loops=not step.needed,
            modules=self.modules,
            calls=dict.fromkeys(_WORLD, world) if world else {},
            removed=self.removed,
        )
        return _raised(follower, step.follow, step.phase, needed=step.needed)

    def places(self, changed: Configuration) -> frozenset[str]:
        """Return every place that refuses a configuration."""
        every = (self.raised(changed, step) for step in self.steps(changed))
        return frozenset(raised.read_from for raised in every if raised is not None)

    @cached_property
    def removed(self) -> frozenset[str]:
        """The keys that the job removes."""
        return frozenset(
            word.key for word in self.configuration.overrides if word.sign == "~" and word.fate == "applied"
        )

    @cached_property
    def estimator(self) -> Callable[..., Estimator | None]:
        """The reader of an estimator by its name, as these trainers call it.

        It reads each once: many configurations are tried.
        """
        definitions = Definitions([self.verl], None, lambda *_: UNCLEAR)
        file = self.verl.folder / ALGORITHMS_FILE
        return functools.cache(lambda name, *trainers: read_estimator(name, trainers, file, definitions))


def _library(raised: Raised, others: Iterable[SourceTree]) -> str:
    """The package that raises it, "" for verl."""
    path = Path(raised.read_from.rpartition(":")[0])
    return next((tree.name for tree in others if path.is_relative_to(tree.folder)), "")


def _raised(
    follower: Follower, step: Callable[[Follower], object], phase: Phase, *, needed: bool
) -> Raised | None:
    """What a step raises. Unless the step is `needed`, an error counts only if it depends on a setting."""
    try:
        step(follower)
    except RefusedError as refused:
        refusal = refused.refusal
        keys = tuple(key for key in refusal.keys if "." in key)
        if not keys and not needed:
            return None
        around = tuple(key for key in refusal.around if "." in key)
        return Raised(
            refusal.raised, refusal.text, refusal.read_from, refusal.condition, keys, phase, around=around
        )
    except (NotFollowedError, RecursionError):
        return None
    return None


def _world(configuration: Configuration, processes: JobProcesses | Unknown) -> int:
    """Return the number of the trainer's processes; 0 if it is unknown."""
    counts: list[Any] = []
    if configuration.has(ROLLOUT):
        counts = [configuration.get("trainer.nnodes"), configuration.get("trainer.n_gpus_per_node")]
    elif isinstance(processes, JobProcesses) and processes.launcher in ("torchrun", "torch.distributed.run"):
        options = processes.options
        given = [options.get("nnodes") or "1", options.get("nproc_per_node") or ""]
        counts = [int(text) if text.isdigit() else None for text in given if not processes.undetermined]
    if not counts or any(type(count) is not int or count < 1 for count in counts):
        return 0
    return math.prod(counts)
