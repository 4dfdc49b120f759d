"""LEFT130: verl starts rollout servers and never stops them."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.toolkit.collectors.configuration.rollout_servers import (
    END,
    MANAGER,
    RolloutServers,
    ServingClass,
)
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_SERVERS = "/env/verl/workers/rollout/async_server.py"
_TRAINER = "/env/verl/trainer/ppo/ray_trainer.py"
_DERIVED = "/home/me/agents/verl"


def _tree(*, manager: bool, trainer: bool, mode: str = "") -> RolloutServers:
    return RolloutServers(
        managers=(ServingClass(path=_SERVERS, line=121, name="AsyncLLMServerManager", ends=manager),),
        trainers=(ServingClass(path=_TRAINER, line=1084, name="RayPPOTrainer", ends=trainer),),
        mode=mode,
    )


def _derived(*, ends: bool) -> RolloutServers:
    return RolloutServers(
        managers=(
            ServingClass(
                path=f"{_DERIVED}/async_server.py", line=300, name="AsyncLLMServerManager", ends=ends
            ),
        ),
        trainers=(),
        mode="async",
        holders=(ServingClass(path=f"{_DERIVED}/ray_trainer.py", line=346, name="RayPPOTrainer", ends=ends),),
    )


def _examples() -> list[Example]:
    return [
        Example("both exist", (_tree(manager=True, trainer=True),)),
        Example(
            "released verl 0.4.0 to 0.5.0",
            (_tree(manager=False, trainer=False),),
            "AsyncLLMServerManager has no cleanup()",
        ),
        Example("a job that has no such servers", (_tree(manager=False, trainer=False, mode="sync"),)),
        Example(
            "the trainer does not call the clean-up",
            (_tree(manager=True, trainer=False),),
            "RayPPOTrainer calls none",
        ),
        Example(
            "the trainer calls what does not exist",
            (_tree(manager=False, trainer=True),),
            "AsyncLLMServerManager has no cleanup()",
        ),
        Example(
            "copies in the user's own project",
            (_derived(ends=False),),
            "AsyncLLMServerManager has no cleanup(), and RayPPOTrainer has no cleanup()",
        ),
        Example("the same, repaired", (_derived(ends=True),)),
    ]


@check("LEFT130", severity="warning", examples=_examples)
def servers_outlive_training(servers: RolloutServers) -> Iterator[Finding]:
    """verl starts rollout servers and never stops them.

    ## Why it matters

    With `rollout.mode=async` each engine runs below its own server, a named actor. Releases 0.4.0 to 0.5.0
    only put them to sleep after each step, and leave the chat scheduler's thread and the agent loop's workers
    running too. Ray ends all of them with the driver, even after Ctrl-C or SIGTERM (measured with Ray 2.46
    and 2.60). Until then they keep the GPU memory that sleep leaves, and the names that a second training in
    the same process would use.

    ## How to fix

    Give the manager a `cleanup()` that stops the scheduler's loop and ends each server and worker, continuing
    when a step fails, and make the trainer call it however `fit` ends. A class that holds the manager but has
    no `fit` gets a `cleanup()` that calls the manager's.
    """
    lacking = [part for part in (*servers.managers, *servers.holders) if not part.ends]
    careless = [trainer for trainer in servers.trainers if not trainer.ends]
    if servers.mode not in ("", "async") or not (lacking or careless):
        return
    lacks = [f"{part.name} has no {END}()" for part in lacking]
    lacks += [f"{trainer.name} calls none" for trainer in careless]
    places = [Location(serving_class.path, serving_class.line) for serving_class in (*lacking, *careless)]
    yield Finding(
        f"nothing stops the servers of an asynchronous rollout: {', and '.join(lacks)}",
        Evidence(
            found=f"{MANAGER} is only put to sleep",
            wanted=f"{MANAGER}.{END}() when fit ends",
            read_from=", ".join(sorted({place.path for place in places})),
        ),
        subject=Subject("symbol", (*lacking, *careless)[0].name),
        location=places[0],
        also=tuple(places[1:]),
        remedy="stop the servers when the training ends",
        severity=None if servers.mode == "async" else "info",
        fix="servers-end-with-training",
    )
