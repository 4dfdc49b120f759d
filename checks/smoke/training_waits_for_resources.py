"""SMOKE153: Ray cannot start a part of the job, and the job waits for it forever."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.smoke._smoke import broken_by, examples_of
from verl_doctor.toolkit.collectors.smoke.run import SmokeRun
from verl_doctor.toolkit.rule import Example, Finding, check


def _examples() -> tuple[Example, ...]:
    return examples_of(
        "SMOKE153", 5, "a step of verl", "Ray cannot start a placement group of 8 x 1 CPU: it has 2 CPU"
    )


@check("SMOKE153", phase="ray", cost="slow", examples=_examples)
def training_waits_for_resources(run: SmokeRun) -> Iterator[Finding]:
    """Ray cannot start a part of the job, and the job waits for it forever.

    ## Why it matters

    verl reserves CPUs and GPUs for its workers and helpers, and waits until Ray has them, with no time limit
    and often without a message. Ray counts its resources once, when it starts; a container limit or
    `num_cpus` may make them fewer than the machine has.

    ## How to fix

    Give Ray what is requested (`ray_kwargs.ray_init.num_cpus`, `ray start --num-cpus`), or request less:
    fewer helpers (`transfer_queue.backend.SimpleStorage.num_data_storage_units`,
    `actor_rollout_ref.rollout.agent.num_workers`, `reward.num_workers`).
    """
    yield from broken_by("SMOKE153", run)
