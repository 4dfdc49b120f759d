"""The job whose environment is asked for: what it is put together from, its program, its configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.hydra_program import program_file
from verl_doctor.toolkit.collectors.gpu.kinds import GpuKinds
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, TorchTree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch, Setting
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.collectors.variables.verl_environment import Job, configured
from verl_doctor.toolkit.facts import Absent, Unknown
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.sources.hydra.lookup import MISSING
from verl_doctor.toolkit.sources.python.evaluate import UNCLEAR
from verl_doctor.toolkit.sources.python.source import SourceTree

_MAIN = "trainer.main_ppo"
_EXECUTOR = "actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend"


@dataclass(frozen=True)
class Parties:
    """What a job is put together from. `ray_address` is that of the cluster which --ray-address names, "" without it."""

    machine: Machine
    launch: Launch | Unknown
    configuration: Configuration | Unknown
    trees: VerlTrees | Unknown
    torch: TorchTree | Unknown
    libraries: LibraryTrees | Unknown
    raylets: Raylets | Unknown
    gpus: GpuKinds | Unknown
    ray_address: str = ""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What the launch files give."""
        return () if isinstance(self.launch, Unknown) else self.launch.settings

    @property
    def starts_ray(self) -> bool:
        """Whether the launch script starts Ray itself."""
        return isinstance(self.launch, Launch) and bool(self.launch.ray_starts)

    @property
    def ray(self) -> Path | None:
        """The folder of the Ray that the job imports."""
        trees = () if isinstance(self.libraries, Unknown) else self.libraries.trees
        return next((Path(tree.folder) for tree in trees if tree.module == "ray"), None)

    @property
    def submitted(self) -> bool:
        """Whether the driver is started by the cluster (`ray job submit`), not from this shell."""
        return isinstance(self.launch, Launch) and self.launch.submitted


def job_of(parties: Parties, notes: list[str]) -> Job | None:
    """The program and what decides its way. None without it; what could not be had is added to the `notes`."""
    if isinstance(parties.trees, Unknown):
        notes.append(f"what verl gives to the workers is not known: {parties.trees.reason}")
        return None
    tree = parties.trees.imported
    folder = Path(tree.folder)
    module = f"{tree.module}.{_MAIN}"
    command = None if isinstance(parties.launch, Unknown) else parties.launch.command
    if command is not None:
        module = command.module
        around = [parties.machine.cwd, Path(command.path).parent, folder.parent]
        program = program_file(module, around, folder)
    else:
        program = folder.joinpath(*_MAIN.split(".")).with_suffix(".py")
    if program is None or not os.path.isfile(program):
        notes.append(f"what verl gives to the workers is not known: the source of {module} was not found")
        return None
    job = Job(
        SourceTree(folder, tree.module, alias="verl"),
        program,
        module,
        libraries=_libraries(parties),
        capability=_capability(parties),
    )
    if isinstance(parties.configuration, Unknown) or parties.configuration.refused:
        reason = (
            parties.configuration.reason if isinstance(parties.configuration, Unknown) else "Hydra refuses it"
        )
        notes.append(f"what depends on verl's configuration cannot be told: {reason}")
        return job
    known = configured(parties.configuration)
    if parties.configuration.get(_EXECUTOR) == "ray":
        notes.append("vLLM's own Ray executor copies the environment of the rollout server to its workers")
    return replace(
        job,
        configuration=known,
        rollout=_named(parties.configuration, "actor_rollout_ref.rollout.name", job.rollout),
        strategy=_named(parties.configuration, "actor_rollout_ref.actor.strategy", job.strategy),
    )


def _named(configuration: Configuration, key: str, default: str) -> str:
    """A name in the configuration: verl's own default where there is no such key, "" when it cannot be told."""
    value = configuration.get(key)
    return default if value is MISSING else value if isinstance(value, str) else ""


def _capability(parties: Parties) -> Any:
    """What verl would be told of the GPUs where the driver runs. Without GPUs here that is known only if Ray runs here."""
    if isinstance(parties.gpus, Unknown):
        no_gpu_at_the_driver = isinstance(parties.gpus, Absent) and not isinstance(parties.raylets, Unknown)
        return (None, None) if no_gpu_at_the_driver else UNCLEAR
    capabilities = parties.gpus.capabilities
    return tuple(map(int, capabilities[0].split("."))) if len(capabilities) == 1 else UNCLEAR


def _libraries(parties: Parties) -> dict[str, Path]:
    """The folders of the packages whose constants verl asks for."""
    found = {} if isinstance(parties.torch, Unknown) else {"torch": Path(parties.torch.tree.folder)}
    return found if parties.ray is None else {**found, "ray": parties.ray}
