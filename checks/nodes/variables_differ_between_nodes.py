"""ENV130: a variable that matters to all processes of a job is not the same on all nodes."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.nodes._fleet import Words, differences
from verl_doctor.checks.nodes._fleet_examples import fleet_of
from verl_doctor.toolkit.collectors.ray.fleet import Fleet, Subject
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> list[Example]:
    return [
        Example("all alike", (fleet_of(1000),)),
        Example(
            "one node lacks the variable",
            (fleet_of(8, ("variable", "NCCL_IB_HCA", {"mlx5": 7, "": (1, "node5")})),),
            "node5 has no NCCL_IB_HCA, the other 7 have NCCL_IB_HCA=mlx5",
        ),
    ]


@check("ENV130", severity="warning", cost="cluster", examples=_examples)
def variables_differ_between_nodes(fleet: Fleet) -> Iterator[Finding]:
    """A variable that matters to all processes of a job differs between nodes.

    ## Why it matters

    Ray's workers have the environment of the raylet of their node, which is that of the shell in which `ray
    start` ran there. If NCCL's settings differ, the processes of one collective use different protocols and
    hang; if PYTHONHASHSEED or vLLM's settings differ, workers of one group behave differently.

    ## How to fix

    Set it in the `runtime_env` of the job, which reaches all nodes (`verl-doctor fix --output-env DIR` writes
    one), or restart Ray on these nodes from the same shell file.
    """
    yield from differences(fleet.about("variable"), _WORDS)


def _phrase(subject: Subject, value: str) -> str:
    return f"{subject.name}={value}" if value else f"no {subject.name}"


_WORDS = Words(
    phrase=_phrase,
    singular="variable",
    several="variables",
    read_from="the environment of a Ray worker on each node",
    remedy="set it in the runtime_env of the job",
)
