"""BUILD131: the job cannot be laid over its GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.construction import SOUND, broken, findings, reached, unjudged
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.rule import Example, Finding, check

_TRAINER = {"world": "distributing the job over its GPUs"}
_ENGINE = {"engine's world": "dividing the model among the GPUs of an engine"}
_HEADS = "Total number of attention heads (14) must be divisible by tensor parallel size (4)."


def _examples() -> list[Example]:
    return [
        Example("all ranks are created", (SOUND,)),
        Example(
            "a mesh",
            (
                broken(
                    "world",
                    "ValueError",
                    "the rollout's tensor_model_parallel_size=3 does not divide the 8 GPUs of the job",
                ),
            ),
            "does not divide the 8 GPUs",
        ),
        Example(
            "heads",
            (broken("engine's world", "ValueError", _HEADS),),
            "must be divisible by tensor parallel size",
        ),
    ]


@check(
    "BUILD131",
    cost="live",
    unjudged=unjudged((*_TRAINER, *_ENGINE)),
    applies=reached((*_TRAINER, *_ENGINE)),
    examples=_examples,
    since="0.2",
)
def world_cannot_be_made(construction: Construction) -> Iterator[Finding]:
    """The job cannot be distributed over its GPUs.

    ## Why it matters
    Data, sequences, tensors and layers are divided among all GPUs of the job, and these numbers must divide
    each other: the number of GPUs, the heads of the model, the batch. Here verl's own workers ran as one rank
    of a world of the job's size, alone in its process group, and the engine's own checks ran with the job's
    parallel sizes.

    ## How to fix
    Change the number that the finding names: `trainer.nnodes`, `trainer.n_gpus_per_node`, `fsdp_size`,
    `ulysses_sequence_parallel_size`, `tensor_model_parallel_size`, or the batch.
    """
    remedy = "change one of the two numbers so that one divides the other"
    yield from findings(construction, _TRAINER, "workers", remedy)
    yield from findings(construction, _ENGINE, "engine", remedy)
