"""Shared by the rules about fine-tuning jobs: how many processes share the rows of a batch."""

from __future__ import annotations

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown

_PARALLEL = "engine.ulysses_sequence_parallel_size"


def is_sharded(configuration: Configuration) -> bool:
    """Return whether a fine-tuning job trains with FSDP.

    There, all processes share the data but for sequence parallelism.
    """
    return configuration.get("engine.strategy") in ("fsdp", "fsdp2")


def sharing_processes(
    configuration: Configuration, processes: JobProcesses, variables: JobVariables | Unknown
) -> int:
    """Return the number of processes that share the data of a fine-tuning job with FSDP; 0 if it is unknown.

    Variables such as PET_NPROC_PER_NODE are the defaults of torchrun's options.
    """
    given = {} if isinstance(variables, Unknown) else variables.values
    usual = {name: given.get(f"PET_{name.upper()}", "1") for name in ("nnodes", "nproc_per_node")}
    size = processes.world_size(usual)
    parallel = configuration.get(_PARALLEL)
    parallel = parallel if type(parallel) is int and parallel > 0 else 1
    return size // parallel if size is not None and is_sharded(configuration) else 0
