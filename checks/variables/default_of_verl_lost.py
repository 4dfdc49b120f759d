"""ENV109: the driver's value of a variable does not reach workers, but makes verl omit its own default."""

from __future__ import annotations

from collections.abc import Iterator

from verl_doctor.checks.shared.effective import (
    CONSTANTS,
    own,
    raylet_names,
    row,
    script,
    set_at,
    standing,
    value_text,
)
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.effective_environment import (
    Assigned,
    EffectiveEnvironment,
    Value,
)
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.rule import Evidence, Example, Finding, Location, Subject, check

_NAME = "VLLM_DISABLE_COMPILE_CACHE"
_DEFAULT = Assigned(value=Value("1"), to="training workers", path=CONSTANTS, line=93)


def _examples() -> list[Example]:
    return [
        Example("verl's default is given", (standing(row(_NAME, None, None, "1", "verl")), *script()[:2])),
        Example(
            "the job starts its own Ray",
            (own(row(_NAME, "0", "0", "0", "the driver", dropped=_DEFAULT)), *script(_NAME)[:2]),
        ),
        Example(
            "the raylet has the same value",
            (standing(row(_NAME, "0", "0", "0", dropped=_DEFAULT)), *script(_NAME)[:2]),
        ),
        Example(
            "the workers get neither",
            (standing(row(_NAME, "0", None, None, "nobody", dropped=_DEFAULT)), *script(_NAME)[:2]),
            "does not reach the workers either",
        ),
        Example(
            "the raylet has a third one",
            (standing(row(_NAME, "0", "2", "2", dropped=_DEFAULT)), *script(_NAME)[:2]),
            "does not reach the workers either",
        ),
        Example(
            "the raylet happens to have the default",
            (standing(row(_NAME, "0", "1", "1", dropped=_DEFAULT)), *script(_NAME)[:2]),
            "but the workers get 1",
        ),
    ]


@check("ENV109", severity="warning", examples=_examples)
def default_of_verl_lost(
    environment: EffectiveEnvironment, variables: Variables, launch: Launch | Unknown
) -> Iterator[Finding]:
    """The driver's value of a variable does not reach the workers, but makes verl omit its own default.

    ## Why it matters

    verl passes defaults for some variables to its workers (`trainer/constants_ppo.py`). It omits those that
    are already set in the driver's environment, so that your value is kept. But in a cluster that is already
    running, workers inherit from the raylet, not from the driver, so your value does not reach them.

    ## How to fix

    Set the variable before `ray start` on every node (`verl-doctor fix --output-env DIR` writes the file), or
    pass it with `+ray_kwargs.ray_init.runtime_env.env_vars.NAME=value`, which verl never omits. Or do not set
    it at all, and verl passes its default.
    """
    for variable in environment.rows:
        if variable.dropped is None or not variable.driver.differs(variable.worker):
            continue
        location, where = set_at(variable.name, variables, launch)
        default = Location(variable.dropped.path, variable.dropped.line)
        seen = value_text(variable.worker)
        gets = (
            f"but the workers get {seen}"
            if variable.worker == variable.dropped.value
            else f"but the driver's value does not reach the workers either ({seen} there)"
        )
        yield Finding(
            (
                f"{variable.name}: verl omits its default {value_text(variable.dropped.value)} because the "
                f"driver has {value_text(variable.driver)}, {gets}"
            ),
            Evidence(
                f"driver {value_text(variable.driver)} ({where}), workers {seen}",
                f"{value_text(variable.driver)} in the environment of {raylet_names(environment)}",
                str(default),
            ),
            location=location or default,
            remedy="set it before ray start on every node, or pass it in the job's runtime_env",
            severity=None if location or not isinstance(launch, Unknown) else "info",
            fix="default-for-workers",
            subject=Subject("variable", variable.name),
        )
