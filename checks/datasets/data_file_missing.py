"""DATA101: a data file does not exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verl_doctor.checks.datasets._data import (
    files,
    first_validation,
    instead_of_validation,
    location,
    written,
)
from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import healed, reworded, settings
from verl_doctor.checks.shared.launch_examples import FILES
from verl_doctor.checks.shared.made_first import unless_made
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.data_files import DataFile, DataFiles
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import counted

_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})")
_TRAIN, _VALIDATION = "data.train_files", "data.val_files"


def _examples() -> list[Example]:
    return [
        Example("the file exists", (files(),)),
        Example("something else is wrong with it", (files("pointer"),)),
        Example("it does not exist", (files("missing"),), "/data/train.parquet does not exist"),
        Example(
            "its folder does not exist either",
            (files("missing", reason="there is no folder /data"),),
            "no folder /data",
        ),
        Example("a folder", (files("folder"),), "is a folder"),
        Example(
            "no file at all",
            (files(), *configured("+data.train_files=[]")),
            "data.train_files is an empty list",
        ),
        Example(
            "no validation table",
            (files(), *configured("+data.val_files=null")),
            "data.val_files is null, but verl opens a table of that name",
        ),
        Example(
            "made first",
            (files("missing"), Launch(FILES, made=("/data",))),
            "a command of the script creates it first",
        ),
    ]


@check("DATA101", phase="workers", requires=("CFG103", "CFG104"), examples=_examples)
def data_file_missing(
    data: DataFiles, configuration: Configuration | Unknown, launch: Launch | Unknown
) -> Iterator[Finding]:
    """A data file does not exist.

    ## Why it matters

    verl opens the data after Ray has started and the workers are placed. On a cluster the file must exist on
    the node that runs the driver's task, which may not be the node you are on.

    ## How to fix

    Correct the path, or create the file: verl's `examples/data_preprocess` has a script for each of its data
    sets.
    """
    if not isinstance(configuration, Unknown):
        yield from _without_files(configuration, data)
    for file in data.files:
        if file.trouble not in {"missing", "folder"}:
            continue
        what = "is a folder, not a file" if file.trouble == "folder" else "does not exist"
        found = Finding(
            f"{file.path} {what}" + (f": {file.reason}" if file.reason else ""),
            Evidence(file.trouble, "a data file", file.named_by),
            location=location(file),
            remedy=f"correct {file.named_by}, or create the file",
            subject=Subject("file", file.path),
            **(
                {"fix": "double-quotes"}
                if _is_not_expanded(file, launch)
                else healed("DATA101", _correction(data, file, configuration))
            ),
        )
        yield unless_made(found, file.path, launch) if file.trouble == "missing" else found


def _without_files(configuration: Configuration, data: DataFiles) -> Iterator[Finding]:
    """Yield what names no table at all.

    Fine-tuning does without a validation table, and a class of the user's own may do without any.
    """
    if configuration.get("data.custom_cls.path") not in (None, MISSING):
        return
    for key in (_TRAIN, _VALIDATION) if configuration.has("actor_rollout_ref") else (_TRAIN,):
        word, value = configuration.override_of(key), configuration.get(key)
        if word is None or value not in ([], None):
            continue
        is_list = value == []
        yield Finding(
            f"{key} is an empty list" if is_list else f"{key} is null, but verl opens a table of that name",
            Evidence(word.text, "at least one data file", key),
            location=place(word),
            remedy="name a table; a pattern in the script may have matched no file"
            if is_list
            else (
                f"set {key} to a table, even if no validation runs (trainer.test_freq=-1 "
                "trainer.val_before_train=False)"
            ),
            subject=Subject("setting", key),
            **healed("DATA101", _unused(configuration, data) if key == _VALIDATION else None),
        )


def _unused(configuration: Configuration, data: DataFiles) -> Correction | None:
    """The training table in place of none, if there is no validation and the table is only opened."""
    trained = _trained(data)
    if not trained or first_validation(configuration) != "never":
        return None
    return settings(
        configuration, {_VALIDATION: trained}, effect=f"no validation runs; {trained} is opened in its place"
    )


def _trained(data: DataFiles) -> str:
    """The first sound training table; "" if there is none."""
    return next((file.path for file in data.files if file.role == "train" and not file.trouble), "")


def _is_not_expanded(file: DataFile, launch: Launch | Unknown) -> bool:
    """Return whether single quotes keep a variable in the path from the shell."""
    words = launch.command.words if isinstance(launch, Launch) and launch.command else ()
    return any(
        word.line == file.line and "'" in word.written and _VARIABLE.search(word.text or "") is not None
        for word in words
    )


def _correction(data: DataFiles, file: DataFile, configuration: Configuration | Unknown) -> Correction | None:
    """The table that may have been meant, otherwise the training table.

    The training table replaces a table that is only opened, if there is no validation.
    """
    if isinstance(configuration, Unknown):
        return None
    word = configuration.override_of(file.named_by)
    if word is None or not (path := written(word, file)):
        return instead_of_validation(file, _trained(data), configuration)
    if file.left_behind:
        head, _, value = word.text.partition("=")
        why = "a whole path is the same in every folder"
        return reworded(word, f"{head}={value.replace(path, file.path)}", why)
    if file.beside:
        effect = f"the job reads {file.beside} instead of {file.path}"
        return reworded(word, word.text.replace(path, file.beside), effect=effect)
    if file.inside and file.role == "train":
        count = counted(len(file.inside), "table")
        effect = f"the job reads the {count} in {file.path}"
        return settings(configuration, {file.named_by: list(file.inside)}, effect=effect)
    return instead_of_validation(file, _trained(data), configuration)
