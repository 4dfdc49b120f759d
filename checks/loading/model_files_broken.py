"""LOAD101: files of the model are missing, Git LFS pointers, or damaged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from verl_doctor.checks.shared.configuration import configured
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.checks.shared.made_first import unless_made
from verl_doctor.toolkit.collectors.configuration.configuration import MISSING, Configuration
from verl_doctor.toolkit.collectors.configuration.roles import has_external_module
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.model.model import BadFile, Model
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Correction, Evidence, Example, Finding, Location, Subject, check
from verl_doctor.toolkit.text import counted, listed

_FINE = Model(
    folder="/models/qwen",
    named_by="--model",
    architectures=("Qwen2ForCausalLM",),
    model_type="qwen2",
    head_size=128,
)
_ELSEWHERE = replace(_FINE, code_elsewhere="configuration_math.py")
_SECTIONS = ("actor_rollout_ref.model", "model")
_SHOWN = 3


def _model(*, trust: bool = True, **more: str) -> Mapping[str, object]:
    return {"model": {"trust_remote_code": trust, "hf_config_path": None, **more}}


def _with(*bad: BadFile) -> Model:
    return replace(_FINE, bad_files=bad)


def _examples() -> list[Example]:
    return [
        Example("everything is in place", (_FINE,)),
        Example("the folder does not exist", (_with(BadFile(name="", trouble="missing")),), "does not exist"),
        Example(
            "no configuration", (_with(BadFile(name="config.json", trouble="missing")),), "has no config.json"
        ),
        Example(
            "cloned without git-lfs",
            (
                _with(
                    BadFile(name="a.safetensors", trouble="pointer"),
                    BadFile(name="b.safetensors", trouble="pointer"),
                ),
            ),
            "2 Git LFS pointers",
        ),
        Example(
            "an interrupted download",
            (
                _with(
                    BadFile(
                        name="model-2.safetensors",
                        trouble="missing",
                        reason="model.safetensors.index.json names it",
                    )
                ),
            ),
            "model-2.safetensors",
        ),
        Example(
            "a damaged file",
            (_with(BadFile(name="config.json", trouble="damaged", reason="it is not JSON")),),
            "not JSON",
        ),
        Example(
            "named in the launch script",
            (replace(_with(BadFile(name="", trouble="missing")), place="/home/me/run.sh", line=4),),
            "does not exist",
        ),
        Example(
            "another name, and a model nearby",
            (replace(_with(BadFile(name="", trouble="missing")), beside="/models/qwen2"),),
            "does not exist",
        ),
        Example(
            "code of its own that the job does not run", (_ELSEWHERE, *configured(tree=_model(trust=False)))
        ),
        Example(
            "code of its own that a module may replace",
            (_ELSEWHERE, *configured("+model.external_lib=mine", tree=_model())),
        ),
        Example(
            "a configuration in another folder",
            (_ELSEWHERE, *configured(tree=_model(hf_config_path="/models/other"))),
        ),
        Example(
            "code of its own that is not there",
            (_ELSEWHERE, *configured(tree=_model())),
            "has no configuration_math.py, which auto_map in config.json names",
        ),
        Example("no weights at all", (replace(_FINE, without_weights=True),), "no weights"),
    ]


@check("LOAD101", phase="workers", requires={"CFG104"}, examples=_examples)
def model_files_broken(
    model: Model, configuration: Configuration | Unknown, launch: Launch | Unknown
) -> Iterator[Finding]:
    """Files of the model are missing, Git LFS pointers, or damaged.

    ## Why it matters

    Every worker opens the model's files, minutes into a run, and the error messages mislead. A missing path
    is taken for a name on the model hub (`Repo id must be in the form ...`). A Git LFS pointer gives `header
    too large` or `invalid JSON`. A missing shard makes one worker fail while the others wait.

    ## How to fix

    A model with its own code (`auto_map` in config.json) needs the Python files as well. After an interrupted
    download, run `hf download NAME --local-dir DIR` again: it resumes. In a clone, run `git lfs install` and
    `git lfs pull`.
    """
    pointers = [file for file in model.bad_files if file.trouble == "pointer"]
    missing = [file for file in model.bad_files if file.trouble == "missing" and file.reason]
    if pointers:
        names = listed((file.name for file in pointers), _SHOWN)
        yield _finding(
            model,
            Subject("model", model.folder, "pointer"),
            f"{model.folder} has {counted(len(pointers), 'Git LFS pointer')} instead of files: {names}",
            "the files themselves",
            f"run git lfs pull in {model.folder}, or download the model with hf download",
        )
    if missing:
        names = listed((file.name for file in missing), _SHOWN)
        message = f"{model.folder} lacks {counted(len(missing), 'weight file')}: {names}"
        about = Subject("model", model.folder, "missing")
        remedy = "download the model again: the last download was interrupted"
        yield _finding(model, about, message, missing[0].reason, remedy)
    for file in model.bad_files:
        about = (
            Subject("file", f"{model.folder}/{file.name}") if file.name else Subject("model", model.folder)
        )
        if file.trouble == "missing" and not file.reason:
            what = (
                f"{model.folder} has no {file.name}"
                if file.name
                else f"the model folder {model.folder} does not exist"
            )
            remedy = (
                f"write {model.named_by}={model.beside}"
                if model.beside
                else f"correct {model.named_by}, or download the model to that folder"
            )
            found = _finding(model, about, what, "a model folder", remedy)
            found = replace(found, **healed("LOAD101", _correction(model, configuration)))
            yield unless_made(found, f"{model.folder}/{file.name}".rstrip("/"), launch)
        elif file.trouble == "damaged":
            message = f"{model.folder}/{file.name} cannot be used: {file.reason}"
            yield _finding(model, about, message, "a readable file", "download the file again")
    if model.code_elsewhere and _runs_code(configuration):
        yield Finding(
            f"{model.folder} has no {model.code_elsewhere}, which auto_map in config.json names",
            Evidence(
                model.code_elsewhere, "the Python file of the model's own code", f"{model.folder}/config.json"
            ),
            subject=Subject("file", f"{model.folder}/{model.code_elsewhere}"),
            location=Location(f"{model.folder}/config.json"),
            remedy=(
                "copy the model's Python files into the folder, or leave auto_map out if transformers has "
                "the model type"
            ),
        )
    if model.without_weights and not model.bad_files:
        message = f"{model.folder} has no weights: no .safetensors and no .bin file"
        about = Subject("model", model.folder, "no weights")
        remedy = "download the model again, unless random weights are intended"
        yield _finding(model, about, message, "weights", remedy)


def _runs_code(configuration: Configuration | Unknown) -> bool:
    """Return whether the job certainly lets transformers take the config class from the model's folder."""
    if isinstance(configuration, Unknown) or has_external_module(configuration):
        return False
    section = next((name for name in _SECTIONS if configuration.has(f"{name}.trust_remote_code")), "")
    others = {configuration.get(f"{section}.{name}") for name in ("hf_config_path", "external_lib")}
    return configuration.get(f"{section}.trust_remote_code") is True and others <= {None, MISSING}


def _correction(model: Model, configuration: Configuration | Unknown) -> Correction | None:
    """The model that may have been meant."""
    if (
        isinstance(configuration, Unknown)
        or not model.beside
        or configuration.override_of(model.named_by) is None
    ):
        return None
    effect = f"the job trains {model.beside} instead of {model.folder}"
    return settings(configuration, {model.named_by: model.beside}, effect=effect)


def _finding(model: Model, about: Subject, message: str, wanted: str, remedy: str) -> Finding:
    return Finding(
        message,
        Evidence(
            found=listed((file.name or model.folder for file in model.bad_files), _SHOWN) or "no weights",
            wanted=wanted,
            read_from=f"{model.folder} (named by {model.named_by})",
        ),
        subject=about,
        location=Location(model.place, model.line or None) if model.place else Location(model.folder),
        remedy=remedy,
    )
