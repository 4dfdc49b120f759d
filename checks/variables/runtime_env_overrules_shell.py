"""ENV112: the runtime_env gives the workers a different value of a variable from the driver's."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.effective import decided_at, own, row, script, set_at, value_text
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_FILE = "/home/me/runtime_env.yaml"


def _examples() -> list[Example]:
    return [
        Example(
            "both have the same value",
            (own(row("NCCL_DEBUG", "INFO", "INFO", "INFO", "the runtime_env")), *script("NCCL_DEBUG")[:2]),
        ),
        Example(
            "the driver does not set it",
            (own(row("NCCL_DEBUG", None, None, "INFO", "the runtime_env")), *script()[:2]),
        ),
        Example(
            "they contradict each other",
            (
                own(row("NCCL_DEBUG", "INFO", "INFO", "WARN", "the runtime_env", path=_FILE, line=4)),
                *script("NCCL_DEBUG")[:2],
            ),
            "the runtime_env gives the workers WARN",
        ),
    ]


@check("ENV112", severity="info", examples=_examples)
def runtime_env_overrules_shell(
    environment: EffectiveEnvironment, variables: Variables, launch: Launch | Unknown
) -> Iterator[Finding]:
    """The runtime_env gives the workers a different value of a variable from the driver's.

    ## Why it matters

    That may be intended. More often, one of the two places was changed and the other forgotten. The driver
    and its workers then use different caches, log levels or switches, and what the script exports does not
    affect the workers.

    ## How to fix

    Set it in one place. `verl-doctor explain variables` shows which place decides.
    """
    for variable in environment.rows:
        if variable.decided_by != "the runtime_env" or variable.driver.is_set is not True:
            continue
        if variable.driver.differs(variable.worker):
            location, where = set_at(variable.name, variables, launch)
            at = decided_at(variable)
            yield Finding(
                (
                    f"{variable.name} is {value_text(variable.driver)} for the driver, but the runtime_env "
                    f"gives the workers {value_text(variable.worker)}"
                ),
                Evidence(
                    f"{value_text(variable.driver)} in {where}", value_text(variable.worker), str(at or "")
                ),
                subject=Subject("variable", variable.name),
                location=at or location,
                remedy="set it in one place only",
            )
