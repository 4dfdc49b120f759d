"""What the user's words and the launch command name for a warm-up: a model, data, and other paths."""

from __future__ import annotations

import os
from collections.abc import Collection as Numbers
from collections.abc import Sequence
from pathlib import Path

from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_job_files import JobFiles
from verl_doctor.toolkit.fact_launch import Launch
from verl_doctor.toolkit.fact_model import named_model
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.target import UsageError
from verl_doctor.toolkit.warm_files import LeftOut
from verl_doctor.toolkit.warm_request import WarmRequest


def request(
    run: Session,
    collection: Collection,
    paths: Sequence[Path],
    *,
    ranks: Numbers[int],
    limit: int | None,
    dry_run: bool,
    here: bool,
) -> WarmRequest | None:
    """What is asked for; None when nothing is named. Raises UsageError for a path that is not there, if it is to be `here`."""
    named = [str(run.machine.cwd / path) for path in paths]
    for path in named if here else ():
        if not os.path.exists(path):
            raise UsageError(f"--path {path}: there is no such file or folder; name one to be read")
    files = collection.get(JobFiles)
    of_job = () if isinstance(files, Unknown) else files.files
    model = next((file.path for file in of_job if file.what == "model"), "")
    data = [file.path for file in of_job if file.what == "data"]
    left_out = () if model else _untold(run, collection)
    if not (model or data or named or left_out):
        return None
    return WarmRequest(model, (*data, *named), tuple(sorted(ranks)), limit, left_out, dry_run)


def _untold(run: Session, collection: Collection) -> tuple[LeftOut, ...]:
    """Why a launch command tells of no model that lies here."""
    if not (run.target.files or run.target.words):
        return ()
    found = named_model(run.machine, run.target, collection.get(Launch), collection.get(Configuration))
    return (LeftOut("the model", found.reason),) if isinstance(found, Unknown) else ()
