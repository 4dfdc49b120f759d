"""ENV112: the runtime_env gives the workers another value than the driver has."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.effective import decided_at, own, row, said, script, set_at
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.effective_environment import EffectiveEnvironment
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Subject, check

_FILE = "/home/me/runtime_env.yaml"


@check(
    "ENV112",
    severity="info",
    examples=lambda: [
        Example("both say the same", (own(row("NCCL_DEBUG", "INFO", "INFO", "INFO", "the runtime_env")), *script("NCCL_DEBUG")[:2])),
        Example("the driver does not set it", (own(row("NCCL_DEBUG", None, None, "INFO", "the runtime_env")), *script()[:2])),
        Example(
            "they contradict each other",
            (own(row("NCCL_DEBUG", "INFO", "INFO", "WARN", "the runtime_env", path=_FILE, line=4)), *script("NCCL_DEBUG")[:2]),
            "the runtime_env gives the workers WARN",
        ),
    ],
)  # fmt: skip
def runtime_env_overrules_shell(
    environment: EffectiveEnvironment, variables: Variables, launch: Launch | Unknown
) -> Iterator[Finding]:
    """The runtime_env gives the workers a different value from the driver's.

    ## Why it matters

    That may be what you want. More often one of the two places was changed and the other forgotten: the driver and its workers then
    disagree about a cache, a log level or a switch, and what is exported in the script has no effect where it matters.

    ## How to fix

    Say it in one place. `verl-doctor explain variables` shows who decides.
    """
    for one in environment.rows:
        if one.decided_by != "the runtime_env" or one.driver.is_set is not True:
            continue
        if one.driver.differs(one.worker):
            location, where = set_at(one.name, variables, launch)
            at = decided_at(one)
            yield Finding(
                f"{one.name} is {said(one.driver)} for the driver, but the runtime_env gives the workers {said(one.worker)}",
                Evidence(f"{said(one.driver)} in {where}", said(one.worker), str(at or "")),
                subject=Subject("variable", one.name),
                location=at or location,
                remedy="set it in one place only",
            )
