"""Collects verl's uses of other libraries from both source trees, in a separate process if they are large."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

from verl_doctor.toolkit.collectors.api import taken
from verl_doctor.toolkit.collectors.api.job_settings import settings_of
from verl_doctor.toolkit.collectors.api.settings import Settings
from verl_doctor.toolkit.collectors.api.uses import ConsultedSettings, LibraryUses, VllmUses
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.listings import Listings
from verl_doctor.toolkit.collectors.installed.result_cache import keep, key_of, recall, remembered
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, TorchTree, Tree, VerlTrees, VllmTree
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.system.run_in_child import in_child

R = TypeVar("R")

# The other engines for rollouts, and the packages from which vLLM's own modules import names that come and
# go.
_ENGINES = frozenset({"sglang"})
_VLLM_IMPORTS = frozenset({"transformers"})
_VLLM_SECONDS = 45
_LIBRARIES_SECONDS = 60  # three of them on a cold, slow file system
_KEPT = 64  # jobs that consulted different settings
_FEW = 200  # fewer sources are read faster than a process starts


@collector(timeout=_VLLM_SECONDS, kept=True)
def vllm_uses(
    verl: VerlTrees,
    vllm: VllmTree,
    interpreter: Interpreter | Unknown,
    libraries: LibraryTrees | Unknown,
    torch: TorchTree | Unknown,
    listings: Listings,
    configuration: Configuration | Unknown,
    variables: JobVariables | Unknown,
    machine: Machine,
) -> VllmUses | Unknown:
    """Read the verl tree that the job would import, and the vLLM modules that it uses on the job's paths."""
    pair = (verl.imported, vllm.tree)
    python = "" if isinstance(interpreter, Unknown) else interpreter.version
    called = "" if vllm.distribution == pair[1].module else vllm.distribution
    others = () if isinstance(libraries, Unknown) else libraries.trees
    engines = sorted(tree.module for tree in others if tree.module in _ENGINES)
    beside = tuple(tree for tree in others if tree.module in _VLLM_IMPORTS)
    beside += () if isinstance(torch, Unknown) else (torch.tree,)

    settings = settings_of(pair[0], configuration, variables, machine)

    def read() -> VllmUses | Unknown:
        # 20 ms, spent only on a first reading
        from verl_doctor.toolkit.collectors.api.surroundings import Surroundings  # noqa: PLC0415
        from verl_doctor.toolkit.collectors.api.trees import read_trees  # noqa: PLC0415

        around = Surroundings(frozenset(engines), called, beside, settings)
        work = partial(read_trees, VllmUses, *pair, python, around)
        return _aside(work, pair, _VLLM_SECONDS)

    about = (*pair, python, sys.version_info[:2], engines, called, beside)
    places = [Path(tree.folder) for tree in (*pair, *beside)]
    found = _remembered(about, places, read, listings, settings)
    return found if isinstance(found, Unknown) else taken.of_vllm(found, taken.paths_taken(configuration))


@collector(timeout=_LIBRARIES_SECONDS, kept=True)
def library_uses(
    verl: VerlTrees,
    libraries: LibraryTrees,
    interpreter: Interpreter | Unknown,
    listings: Listings,
    configuration: Configuration | Unknown,
) -> LibraryUses | Unknown:
    """Like `vllm_uses`, for the other libraries."""
    python = "" if isinstance(interpreter, Unknown) else interpreter.version
    trees = (verl.imported, *libraries.trees)

    def read() -> LibraryUses | Unknown:
        from verl_doctor.toolkit.collectors.api.trees import read_libraries  # noqa: PLC0415 - as above

        work = partial(read_libraries, verl.imported, libraries.trees, python)
        return _aside(work, trees, _LIBRARIES_SECONDS)

    about = (trees, python, sys.version_info[:2])
    found = remembered(LibraryUses, about, [Path(tree.folder) for tree in trees], read, listings)
    return (
        found if isinstance(found, Unknown) else taken.of_libraries(found, taken.paths_taken(configuration))
    )


def _remembered(
    about: object,
    places: list[Path],
    read: Callable[[], VllmUses | Unknown],
    listings: Listings,
    settings: Settings,
) -> VllmUses | Unknown:
    """Return what was read of these trees for a job whose settings give the same answers; else read them.

    `about` and `places` identify the trees. A result keeps the names of the settings that it consulted.
    """
    job = (bool(settings.tree), settings.chosen, settings.program, settings.features)
    trees = key_of((about, job), places, listings)
    known = recall(ConsultedSettings, trees) or ConsultedSettings()

    def key(names: Iterable[str]) -> str:
        answers = [(name, settings.answer(name)) for name in names]
        return hashlib.sha256(repr((trees, answers)).encode("utf-8", "surrogateescape")).hexdigest()

    for names in known.names:
        if (found := recall(VllmUses, key(names))) is not None:
            return found
    answer = read()
    if isinstance(answer, VllmUses):
        newest = [answer.consulted, *(names for names in known.names if names != answer.consulted)]
        keep(ConsultedSettings(tuple(newest[:_KEPT])), trees)
        keep(answer, key(answer.consulted))
    return answer


def _aside(work: Callable[[], R], trees: Iterable[Tree], limit: float) -> R:
    """Read these trees in a separate process, unless they are small."""
    sources = chain.from_iterable(Path(tree.folder).rglob("*.py") for tree in trees)
    few = next(islice(sources, _FEW, None), None) is None
    return work() if few else in_child(work, limit)
