"""The files that options and the launch command name for a warm-up: a model, data, and other paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from verl_doctor.toolkit.engine.collect import Collection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target, UsageError
from verl_doctor.toolkit.warm.files import LeftOut
from verl_doctor.toolkit.warm.request import WarmRequest

Look = Callable[[], tuple[Session, Collection]]
"""A function that opens the session and examines the machine on first use only.

This saves half a second if it is not needed.
"""


def request(target: Target, look: Look, paths: Sequence[str]) -> WarmRequest | None:
    """Return the named files; None if there are none."""
    if target.files or target.words:
        named = _of_launch(*look())
    else:
        named = WarmRequest(str(target.model or ""), tuple(map(str, target.data)))
    paths = (*named.paths, *paths)
    if not (named.model or paths or named.left_out):
        return None
    return WarmRequest(named.model, paths, left_out=named.left_out)


def demand_there(paths: Sequence[Path], machine: Machine) -> tuple[str, ...]:
    """Return the full paths. Raises UsageError for a path that does not exist."""
    named = tuple(str(machine.cwd / path) for path in paths)
    for path in named:
        if not os.path.exists(path):
            raise UsageError(f"--path {path}: no such file or folder")
    return named


def _of_launch(run: Session, collection: Collection) -> WarmRequest:
    """Return the model and the data of the launch command; why there is no model here, if there is none."""
    from verl_doctor.toolkit.collectors.configuration.configuration import Configuration  # noqa: PLC0415 - few warm-ups read a script
    from verl_doctor.toolkit.collectors.launch.launch import Launch  # noqa: PLC0415
    from verl_doctor.toolkit.collectors.model.job_files import JobFiles  # noqa: PLC0415
    from verl_doctor.toolkit.collectors.model.model import named_model  # noqa: PLC0415

    seen = collection.get(JobFiles)
    files = () if isinstance(seen, Unknown) else seen.files
    model = next((file.path for file in files if file.what == "model"), "")
    data = tuple(file.path for file in files if file.what == "data")
    found = named_model(run.machine, run.target, collection.get(Launch), collection.get(Configuration))
    unseen = (LeftOut("the model", found.reason),) if isinstance(found, Unknown) else ()
    return WarmRequest(model, data, left_out=() if model else unseen)
