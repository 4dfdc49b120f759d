"""The job whose environment is traced: its inputs, its program, its configuration."""

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
    """The inputs from which a job is built.

    `ray_address` is the cluster's in --ray-address, "" without the option.
    """

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
        """Return what the launch files set."""
        return () if isinstance(self.launch, Unknown) else self.launch.settings

    @property
    def starts_ray(self) -> bool:
        """Whether the launch script starts Ray itself."""
        return isinstance(self.launch, Launch) and bool(self.launch.ray_starts)

    @property
    def ray(self) -> Path | None:
        """Return the folder of the Ray that the job imports."""
        trees = () if isinstance(self.libraries, Unknown) else self.libraries.trees
        return next((Path(tree.folder) for tree in trees if tree.module == "ray"), None)

    @property
    def submitted(self) -> bool:
        """Whether the cluster starts the driver (`ray job submit`), not this shell."""
        return isinstance(self.launch, Launch) and self.launch.submitted


def job_of(parties: Parties, notes: list[str]) -> Job | None:
    """Return the program and what decides its path.

    None without a program; missing inputs are added to the `notes`.
    """
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
        notes.append(f"what depends on verl's configuration cannot be determined: {reason}")
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
    """Return a name in the configuration: verl's own default if there is no such key, "" if unknown."""
    value = configuration.get(key)
    return default if value is MISSING else value if isinstance(value, str) else ""


def _capability(parties: Parties) -> Any:
    """Return the capability that verl reads of the GPUs on the driver's node.

    Without GPUs here that is known only if Ray runs here.
    """
    if isinstance(parties.gpus, Unknown):
        no_gpu_at_the_driver = isinstance(parties.gpus, Absent) and not isinstance(parties.raylets, Unknown)
        return (None, None) if no_gpu_at_the_driver else UNCLEAR
    capabilities = parties.gpus.capabilities
    return tuple(map(int, capabilities[0].split("."))) if len(capabilities) == 1 else UNCLEAR


def _libraries(parties: Parties) -> dict[str, Path]:
    """Return the folders of the packages whose constants verl reads."""
    found = {} if isinstance(parties.torch, Unknown) else {"torch": Path(parties.torch.tree.folder)}
    return found if parties.ray is None else {**found, "ray": parties.ray}
