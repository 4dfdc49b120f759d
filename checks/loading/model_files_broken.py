"""LOAD101: files of the model are missing, pointers, or damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.toolkit.collectors.model.model import BadFile, Model
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import counted, listed

_FINE = Model("/models/qwen", "--model", ("Qwen2ForCausalLM",), "qwen2", head_size=128)
_SHOWN = 3


def _with(*bad: BadFile) -> Model:
    return replace(_FINE, bad_files=bad)


@check(
    "LOAD101",
    phase="workers",
    examples=lambda: [
        Example("everything is there", (_FINE,)),
        Example("the folder is not there", (_with(BadFile("", "missing")),), "there is no folder"),
        Example("no configuration", (_with(BadFile("config.json", "missing")),), "has no config.json"),
        Example(
            "cloned without git-lfs",
            (_with(BadFile("a.safetensors", "pointer"), BadFile("b.safetensors", "pointer")),),
            "2 Git LFS pointers",
        ),
        Example(
            "a download that was broken off",
            (_with(BadFile("model-2.safetensors", "missing", "model.safetensors.index.json names it")),),
            "model-2.safetensors",
        ),
        Example("a damaged file", (_with(BadFile("config.json", "damaged", "it is no JSON")),), "no JSON"),
        Example("no weights at all", (replace(_FINE, without_weights=True),), "no weights"),
    ],
)
def model_files_broken(model: Model) -> Iterator[Finding]:
    """Files of the model are missing, pointers of Git LFS, or damaged.

    ## Why it matters

    The files of a model are opened minutes into a run, by every worker, and the messages mislead: a path that is no folder is
    taken for a name on the model hub (`Repo id must be in the form ...`), a pointer of Git LFS gives `header too large` or
    `invalid JSON`, a missing shard fails in one worker while the others wait.

    ## How to fix

    Fetch the model anew where a download broke off (`hf download NAME --local-dir DIR` continues). In a clone, run
    `git lfs install` and `git lfs pull`.
    """
    pointers = [file for file in model.bad_files if file.trouble == "pointer"]
    missing = [file for file in model.bad_files if file.trouble == "missing" and file.reason]
    if pointers:
        names = listed((file.name for file in pointers), _SHOWN)
        yield _finding(
            model,
            Subject("model", model.folder, "pointer"),
            f"{model.folder} holds {counted(len(pointers), 'Git LFS pointer')} in place of files: {names}",
            "the files themselves",
            f"run git lfs pull in {model.folder}, or fetch the model with hf download",
        )
    if missing:
        names = listed((file.name for file in missing), _SHOWN)
        message = f"{model.folder} lacks {counted(len(missing), 'file')} of weights: {names}"
        about = Subject("model", model.folder, "missing")
        yield _finding(
            model, about, message, missing[0].reason, "download the model again: the last download broke off"
        )
    for file in model.bad_files:
        about = (
            Subject("file", f"{model.folder}/{file.name}") if file.name else Subject("model", model.folder)
        )
        if file.trouble == "missing" and not file.reason:
            what = f"{model.folder} has no {file.name}" if file.name else f"there is no folder {model.folder}"
            yield _finding(
                model,
                about,
                what,
                "a model's folder",
                f"correct {model.named_by}, or download the model to it",
            )
        elif file.trouble == "damaged":
            message = f"{model.folder}/{file.name} cannot be used: {file.reason}"
            yield _finding(model, about, message, "a file that can be read", "download the file again")
    if model.without_weights and not model.bad_files:
        message = f"{model.folder} has no weights: no .safetensors and no .bin file"
        about = Subject("model", model.folder, "no weights")
        yield _finding(
            model, about, message, "weights", "download the model again, unless its weights are random"
        )


def _finding(model: Model, about: Subject, message: str, wanted: str, remedy: str) -> Finding:
    return Finding(
        message,
        Evidence(
            found=listed((file.name or model.folder for file in model.bad_files), _SHOWN) or "no weights",
            wanted=wanted,
            read_from=f"{model.folder} (named by {model.named_by})",
        ),
        subject=about,
        location=Location(model.folder),
        remedy=remedy,
    )
