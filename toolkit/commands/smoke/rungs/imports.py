"""Rung 1: everything that the job imports can be imported, and the files that the user names exist.

Imports run in parallel, as many processes at a time as there are cores. What a package builds on is imported
before it in the same process, so that a broken torch or Ray is named by itself: in a process of its own it
would be imported once more, which takes two seconds of a core and holds up the others.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from verl_doctor.toolkit.collectors.host.resources import Resources
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.data_files import DataFiles
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.commands.smoke.child import End, Ran, Watch, script
from verl_doctor.toolkit.commands.smoke.failure import failed, steps_of
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.probes import smoke_imports

_LIMIT = 300.0  # seconds per process: minutes without bytecode caches, from a network share
_MAIN = "verl.trainer.main_ppo"
# Modules of verl's workers and rollout, below its top package; the first existing one is used, newest first.
_WORKERS = ("workers.engine_workers", "workers.fsdp_workers")
_ROLLOUT = "workers.rollout.vllm_rollout"


def climb(stage: Stage) -> Outcome:
    """Check the files, then import."""
    wrong = list(_files(stage))
    if wrong:
        return Outcome("failed", wrong[0], "name files that are there", "SMOKE103", tuple(wrong[1:4]))
    ran = _side_by_side(stage, lanes_for(stage, cores(stage)))
    broken = next((run for run in ran if run.code != 0), None)
    if broken is None:
        return Outcome("passed", steps=steps_of(*ran))
    return replace(failed(broken, {"start CUDA": "SMOKE104", "": "SMOKE101"}), steps=steps_of(*ran))


def lanes_for(stage: Stage, processors: int) -> list[tuple[str, ...]]:
    """Return the imports of each process for this many cores, the longest first."""
    main = _program(stage)
    verl = stage.facts.get(VerlTrees)
    folder = None if isinstance(verl, Unknown) else verl.imported.folder
    workers = [f"verl.{name}" for name in _WORKERS if folder and _is_module(folder, name)][:1]
    rollout = [f"verl.{_ROLLOUT}"] if folder and _is_module(folder, _ROLLOUT) else []
    engine, trainer = ("torch", "vllm", *rollout), ("ray", "verl", *main)
    if processors > 2:
        return [engine, trainer, *((worker,) for worker in workers)]
    return [engine, (*trainer, *workers)]


def cores(stage: Stage) -> int:
    """Return how many cores this process may use: its affinity, limited by its cgroup."""
    resources = stage.facts.get(Resources)
    allowed = None if isinstance(resources, Unknown) else resources.cpus
    return max(1, int(allowed or os.cpu_count() or 1))


def _program(stage: Stage) -> tuple[str, ...]:
    """Return the module that the launch script starts.

    A script of the user's own is not imported: it would start training.
    """
    launch = stage.facts.get(Launch)
    command = None if isinstance(launch, Unknown) else launch.command
    module = command.module if command is not None else _MAIN
    return () if "/" in module or module.endswith(".py") else (module,)


def _is_module(folder: str, name: str) -> bool:
    path = Path(folder, *name.split("."))
    return os.path.isfile(path.with_suffix(".py")) or os.path.isfile(path / "__init__.py")


def _side_by_side(stage: Stage, lanes: Sequence[Sequence[str]]) -> list[Ran]:
    """Import in parallel, as many at a time as there are cores.

    Ctrl-C reaches only this thread: the others are notified to end their children.
    """
    over = threading.Event()

    def imported(modules: Sequence[str]) -> Ran:
        argv = script(stage.python, smoke_imports, stage.device, *modules)
        watch: Watch = lambda _: End("stopped", "it was stopped") if over.is_set() else None  # noqa: E731
        return stage.run(argv, limit=_LIMIT, watch=watch, name=f"import-{modules[-1]}")

    with ThreadPoolExecutor(cores(stage)) as pool:
        futures = [pool.submit(imported, modules) for modules in lanes]
        try:
            return [future.result() for future in futures]
        except BaseException:
            over.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _files(stage: Stage) -> Iterator[str]:
    """Yield what is wrong with the files that the user names.

    Without a GPU a launch script's model is not used.
    """
    named = stage.target.model is not None or stage.device == "cuda"
    model = stage.facts.get(Model) if named else Absent("it is not used")
    data = stage.facts.get(DataFiles)
    if isinstance(model, Model):
        if model.without_weights:
            yield f"{model.folder} ({model.named_by}) contains no weights"
        for bad in model.bad_files:
            yield (
                f"{model.folder}/{bad.name} ({model.named_by}): "
                f"{_TROUBLE[bad.trouble]}{bad.reason and f', {bad.reason}'}"
            )
    elif not isinstance(model, Absent) and stage.target.model is not None:
        yield f"the model: {model.reason}"
    for file in data.files if isinstance(data, DataFiles) else ():
        if file.trouble:
            yield f"{file.path} ({file.named_by}): {file.trouble}{file.reason and f', {file.reason}'}"


_TROUBLE = {
    "missing": "there is no such file",
    "pointer": "a Git LFS pointer, not the file",
    "damaged": "damaged",
}
