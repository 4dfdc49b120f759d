"""CFG131: the batch of a fine-tuning job cannot be divided among its processes and micro batches."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.configuration import configured, place
from verl_doctor.checks.shared.corrections import healed, settings
from verl_doctor.checks.shared.fine_tuning import is_sharded, sharing_processes
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Phase, Subject, check
from verl_doctor.toolkit.text import counted

_BATCH, _MICRO = "data.train_batch_size", "data.micro_batch_size_per_gpu"
_DYNAMIC = "data.use_dynamic_bsz"
_TREE = {
    "data": {"train_batch_size": 256, "micro_batch_size_per_gpu": 4, "use_dynamic_bsz": False},
    "engine": {"strategy": "fsdp"},
}
_FOUR = JobProcesses(needs_ranks=True, launcher="torchrun", options={"nproc_per_node": "4"})


def _irrelevant(configuration: Configuration) -> str | None:
    return None if is_sharded(configuration) else "this job does no fine-tuning with FSDP"


def _examples() -> list[Example]:
    return [
        Example("64 rows of each process", (*configured(tree=_TREE), _FOUR)),
        Example("dynamic batches", (*configured(f"{_MICRO}=7", f"{_DYNAMIC}=True", tree=_TREE), _FOUR)),
        Example(
            "the number of processes is unknown",
            (
                *configured(f"{_BATCH}=1", tree=_TREE),
                JobProcesses(needs_ranks=True, launcher="torchrun", undetermined=True),
            ),
        ),
        Example(
            "fewer rows than processes",
            (*configured(f"{_BATCH}=2", tree=_TREE), _FOUR),
            "a batch of 2 rows is too small for 4 processes: each needs at least one",
        ),
        Example(
            "micro batches that do not divide the rows",
            (*configured(f"{_MICRO}=7", tree=_TREE), _FOUR),
            "the 64 rows of each process cannot be divided into micro batches of 7",
        ),
    ]


@check(
    "CFG131",
    applies=_irrelevant,
    requires=("CFG101", "CFG102", "CFG103", "CFG109"),
    examples=_examples,
    since="0.2",
)
def fine_tuning_batch_does_not_divide(
    configuration: Configuration, processes: JobProcesses, variables: JobVariables | Unknown
) -> Iterator[Finding]:
    """The batch of a fine-tuning job cannot be divided among its processes and micro batches.

    ## Why it matters

    The SFT trainer divides `data.train_batch_size` by the number of processes that share the data. If a
    process gets no row, the data loader refuses the batch. Unless batches are dynamic, the rows of each
    process must be a multiple of `data.micro_batch_size_per_gpu`. The job ends when the loader is created, or
    in its first step.

    ## How to fix

    Choose a batch size that is a multiple of the number of processes times the micro batch, or set
    `data.use_dynamic_bsz=True`.
    """
    batch, micro = configuration.get(_BATCH), configuration.get(_MICRO)
    ranks = sharing_processes(configuration, processes, variables)
    if type(batch) is not int or not ranks:
        return
    rows = batch // ranks
    if rows < 1:
        message = (
            f"a batch of {counted(batch, 'row')} is too small for {counted(ranks, 'process', 'processes')}: "
            "each needs at least one"
        )
        yield _finding(configuration, message, _BATCH, {_BATCH: ranks}, "workers")
    elif configuration.get(_DYNAMIC) is False and type(micro) is int and micro > 0 and rows % micro:
        message = f"the {rows} rows of each process cannot be divided into micro batches of {micro}"
        nearest = max(size for size in range(1, micro) if rows % size == 0)
        yield _finding(configuration, message, _MICRO, {_MICRO: nearest}, "first update")


def _finding(
    configuration: Configuration, message: str, key: str, values: dict[str, int], phase: Phase
) -> Finding:
    word = configuration.override_of(key) or configuration.override_of(_BATCH)
    return Finding(
        message,
        Evidence(
            found=f"{_BATCH}={configuration.get(_BATCH)}, {_MICRO}={configuration.get(_MICRO)}",
            wanted=", ".join(f"{name}={value}" for name, value in values.items()),
        ),
        location=place(word) if word else None,
        remedy=f"set {' '.join(f'{name}={value}' for name, value in values.items())}",
        subject=Subject("setting", key),
        stops=(EVERY_JOB,),
        phase=phase,
        **healed("CFG131", settings(configuration, dict(values))),
    )
