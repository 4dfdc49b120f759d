"""The program.

Its configuration composed and resolved, its modules imported, its trainer chosen, verl's own validation.
"""

from __future__ import annotations

import importlib
import importlib.util
import types
from typing import Any

from verl_doctor.toolkit.probes.construction.find import called, find, has, plain
from verl_doctor.toolkit.probes.construction.isolation import no_ray
from verl_doctor.toolkit.probes.construction.job import Job
from verl_doctor.toolkit.probes.construction.stages import NotHereError, NotJudgedError, NotNeededError, stage

_OF_HYDRA = ("now", "hydra", "python_version")  # its resolvers (hydra/core/utils.py)


@stage("composition", seconds=60)
def composition(job: Job) -> None:
    """Compose what `@hydra.main` would pass to the program.

    Hydra's resolvers are included where the program uses Hydra in its own process.
    """
    from omegaconf import OmegaConf

    job.config = job.composed()
    job.kind = "ppo" if job.has("actor_rollout_ref") else "sft" if job.has("data") else "other"
    if job.kind == "ppo" and job.has_runner:  # another process, in which Hydra has registered none
        for name in _OF_HYDRA:
            OmegaConf.clear_resolver(name)
    elif "${hydra:" in OmegaConf.to_yaml(job.config):
        job.set_hydra()


@stage("import", "composition", seconds=180, users=True, imports=True)
def imported(job: Job) -> None:
    """Import the program, including verl, torch and their dependencies."""
    if job.module.endswith(".py") or "/" in job.module:
        spec = importlib.util.spec_from_file_location("job_program", job.module)
        if spec is None or spec.loader is None:
            raise NotJudgedError(f"{job.module} is not a Python program")
        job.program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(job.program)
    else:
        job.program = importlib.import_module(job.module)
    no_ray()


@stage("resolution", "import")
def resolution(job: Job) -> None:
    """Resolve all interpolations, as the task runner does first."""
    from omegaconf import OmegaConf

    if job.has("transfer_queue.enable") and job.value("trainer.use_v1") is True:
        job.set("transfer_queue.enable", value=True)
    OmegaConf.to_container(job.config, resolve=True)


@stage("validation", "resolution")
def validation(job: Job) -> None:
    """Run verl's validation: a function from 0.6 on, a method of the trainer before."""
    if job.kind != "ppo":
        raise NotNeededError("verl validates PPO's configuration only")
    given = {
        "config": job.config,
        "use_reference_policy": needs_reference(job),
        "use_critic": needs_critic(job),
    }
    if has("verl.utils.config:validate_config"):
        called(find("verl.utils.config:validate_config"), **given)
        return
    trainer = find("verl.trainer.ppo.ray_trainer:RayPPOTrainer")
    validate = find("verl.trainer.ppo.ray_trainer:RayPPOTrainer._validate_config")
    validate(types.SimpleNamespace(**given, __class__=trainer))


@stage("trainer", "validation", imports=True)
def trainer(job: Job) -> None:
    """Find the trainer's class for the mode, its sampler and callbacks."""
    OmegaConf = _omegaconf()  # noqa: N806
    if job.kind != "ppo" or not job.value("trainer.use_v1", default=False):
        raise NotNeededError("the job has no trainer of verl's second generation")
    chosen = find("verl.trainer.ppo.v1:get_trainer_cls")(job.value("trainer.v1.trainer_mode"))
    importlib.import_module("transfer_queue")
    OmegaConf.resolve(job.config)
    job.trainer = chosen(config=job.config)


@stage("roles", "validation", imports=True)
def roles(job: Job) -> None:
    """Find the worker classes that the job's strategies choose."""
    if job.kind != "ppo":
        raise NotNeededError("an SFT job has no roles")
    if job.value("trainer.use_v1", default=False):
        raise NotNeededError("the trainer chooses its workers in another stage")
    runner: Any = next(
        (
            plain(getattr(job.program, name))
            for name in ("TaskRunner", "OneStepTaskRunner", "FullyAsyncTaskRunner")
            if hasattr(job.program, name)
        ),
        None,
    )
    if runner is None and job.value("trainer.use_v1") is False:
        runner = plain(find("verl.trainer.main_ppo_v0:TaskRunner"))
    if runner is None:
        raise NotHereError("this program has no task runner")
    own = runner()
    names = [name for name in ("add_actor_rollout_worker", "add_critic_worker") if hasattr(own, name)]
    if not names:
        raise NotHereError("the task runner of this release chooses its workers in one piece")
    for name in names:
        if name != "add_critic_worker" or needs_critic(job):
            getattr(own, name)(job.config)


def needs_reference(job: Job) -> bool:
    """Return whether the job has a reference policy."""
    return bool(job.value("algorithm.use_kl_in_reward") or job.value("actor_rollout_ref.actor.use_kl_loss"))


def needs_critic(job: Job) -> bool:
    """Return whether the job trains a critic."""
    enabled = job.value("critic.enable")
    return job.value("algorithm.adv_estimator") == "gae" if enabled is None else bool(enabled)


def _omegaconf() -> Any:
    from omegaconf import OmegaConf

    return OmegaConf
