"""ENV110: the workers get verl's value of a variable, not the one that is set."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.effective import (
    CONSTANTS,
    decided_at,
    is_for_workers,
    own,
    row,
    script,
    set_at,
    value_text,
)
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Assigned,
    Effective,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Severity, Subject, check

_SERVER = "/env/verl/workers/rollout/vllm_rollout/vllm_async_server.py"
_FORCED = Assigned(value=Value("0"), to="rollout servers", path=_SERVER, line=858)
_RULED = row("NCCL_DEBUG", "INFO", "INFO", "WARN", "verl", path=CONSTANTS, line=43)


def _examples() -> list[Example]:
    return [
        Example(
            "verl's value is the same",
            (own(row("NCCL_DEBUG", "WARN", "WARN", "WARN", "verl")), *script("NCCL_DEBUG")[:2]),
        ),
        Example("nothing else sets it", (own(row("NCCL_DEBUG", None, None, "WARN", "verl")), *script()[:2])),
        Example(
            "each worker has its own",
            (
                own(
                    row(
                        "MASTER_PORT",
                        "1",
                        "1",
                        Value(undetermined="each worker is given its own", present=True),
                        "verl",
                    )
                ),
                *script("MASTER_PORT")[:2],
            ),
        ),
        Example(
            "the rollout servers get the value that is set",
            (
                own(row("NCCL_CUMEM_ENABLE", "0", "0", "0", "the driver", later=(_FORCED,))),
                *script("NCCL_CUMEM_ENABLE")[:2],
            ),
        ),
        Example(
            "verl overwrites it", (own(_RULED), *script("NCCL_DEBUG")[:2]), "verl gives the workers WARN"
        ),
        Example(
            "for the rollout servers only",
            (
                own(row("NCCL_CUMEM_ENABLE", "1", "1", "1", "the driver", later=(_FORCED,))),
                *script("NCCL_CUMEM_ENABLE")[:2],
            ),
            "verl gives the rollout servers 0",
        ),
    ]


@check("ENV110", severity="warning", examples=_examples)
def variable_overruled_by_verl(
    environment: EffectiveEnvironment, variables: Variables, launch: Launch | Unknown
) -> Iterator[Finding]:
    """The workers get verl's value of a variable, not the one that is set.

    ## Why it matters

    verl sets some variables whatever you set, when it calls `ray.init` or creates the rollout servers. Which
    ones depends on the release; they are read from the tree that the job imports. Your value has no effect
    there.

    ## How to fix

    From verl 0.6 on, `+ray_kwargs.ray_init.runtime_env.env_vars.NAME=value` overrides what verl passes to
    `ray.init`. What verl passes to the rollout servers can only be changed in its sources, at the line that
    the finding names; newer releases may read your environment first.
    """
    for variable in environment.rows:
        if not is_for_workers(variable.name) or variable.driver.is_set is not True:
            continue
        location, where = set_at(variable.name, variables, launch)
        severity: Severity | None = None if location or not isinstance(launch, Unknown) else "info"
        for to, value, at in _overruled(variable):
            yield Finding(
                (
                    f"{variable.name}: verl gives the {to} {value_text(value)}, whatever the driver sets "
                    f"({value_text(variable.driver)})"
                ),
                Evidence(
                    f"{value_text(variable.driver)} in {where}",
                    f"{value_text(value)} for the {to}",
                    str(at or ""),
                ),
                subject=Subject("variable", variable.name, to),
                location=location or at,
                remedy="pass your value in ray_kwargs.ray_init.runtime_env.env_vars"
                if to == "workers"
                else "change that line of verl if you need your value there",
                severity=severity,
                also=(at,) if location and at else (),
            )


def _overruled(variable: Effective) -> Iterator[tuple[str, Value, Location | None]]:
    """Yield the processes that get another value from verl than the driver's, with value and location."""
    if (
        variable.decided_by == "verl"
        and not variable.worker.undetermined
        and variable.driver.differs(variable.worker)
    ):
        yield "workers", variable.worker, decided_at(variable)
        return
    for given in variable.later:
        if given.to == "rollout servers" and given.value.is_set and variable.driver.differs(given.value):
            yield given.to, given.value, Location(given.path, given.line)
