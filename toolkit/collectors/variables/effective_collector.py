"""Collects the variables of the job, from this shell to its workers."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.gpu.kinds import GpuKinds
from verl_doctor.toolkit.collectors.installed.trees import LibraryTrees, TorchTree, VerlTrees
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.processes.raylets import Raylets
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown, collector
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Target


@collector(timeout=20, kept=True)
def effective_environment(
    target: Target,
    machine: Machine,
    launch: Launch | Unknown,
    configuration: Configuration | Unknown,
    trees: VerlTrees | Unknown,
    torch: TorchTree | Unknown,
    libraries: LibraryTrees | Unknown,
    raylets: Raylets | Unknown,
    gpus: GpuKinds | Unknown,
) -> EffectiveEnvironment | Unknown:
    """Trace the variables from this shell to the job's workers. Nothing is run."""
    from verl_doctor.toolkit.collectors.variables.effective_reader import resolved_environment  # noqa: PLC0415 - it reads verl's sources
    from verl_doctor.toolkit.collectors.variables.job_parties import Parties  # noqa: PLC0415 - see above

    parties = (machine, launch, configuration, trees, torch, libraries, raylets, gpus)
    return resolved_environment(Parties(*parties, ray_address=target.ray_address))
