"""DATA109: rows name an agent loop that this verl does not have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_doctor.checks.datasets._data import (
    BEFORE,
    EVERY,
    NEVER,
    TABLE,
    VALIDATION,
    location,
    tables,
    takes_part,
    used,
)
from verl_doctor.checks.shared.configuration import configured, own_prompts
from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.registries import AGENT_LOOP, Registry, VerlRegistries
from verl_doctor.toolkit.collectors.model.data_tables import DataTables
from verl_doctor.toolkit.rule import EVERY_JOB, Evidence, Example, Finding, Subject, check
from verl_doctor.toolkit.text import closest, listed

_FILE = "actor_rollout_ref.rollout.agent.agent_loop_config_path"
_MANAGER = "actor_rollout_ref.rollout.agent.agent_loop_manager_class"
_KNOWN = VerlRegistries(
    {AGENT_LOOP: Registry(names=("single_turn_agent", "tool_agent"), read_from="/env/verl/agent_loop.py:470")}
)
_WRONG = replace(TABLE, agents=("tool_agnt",))
_NAMED = DataTables((_WRONG,))
_VALIDATED = DataTables((replace(_WRONG, file=VALIDATION),))


def _examples() -> list[Example]:
    return [
        Example("rows name none", (*configured(), tables(), _KNOWN)),
        Example(
            "verl has it", (*configured(), DataTables((replace(TABLE, agents=("tool_agent",)),)), _KNOWN)
        ),
        Example("a file of the job defines others", (*configured(f"++{_FILE}=loops.yaml"), _NAMED, _KNOWN)),
        Example(
            "a data set class of the job may replace it",
            (*configured("++data.custom_cls.path=mine.py"), _NAMED, _KNOWN),
        ),
        Example(
            "an agent loop manager of the job chooses",
            (*configured(f"++{_MANAGER}=mine.Manager"), _NAMED, _KNOWN),
        ),
        Example(
            "a validation file that the job never reads rows of", (*configured(*NEVER), _VALIDATED, _KNOWN)
        ),
        Example(
            "unknown whether it validates", (*configured(f"++{BEFORE}=${{oc.env:N}}"), _VALIDATED, _KNOWN)
        ),
        Example(
            "validated first",
            (*configured(f"++{BEFORE}=True"), _VALIDATED, _KNOWN),
            "no agent loop tool_agnt",
        ),
        Example(
            "validated later",
            (*configured(*NEVER, f"++{EVERY}=5"), _VALIDATED, _KNOWN),
            "no agent loop tool_agnt",
        ),
        Example(
            "verl does not have it",
            (*configured(), _NAMED, _KNOWN),
            "no agent loop tool_agnt; did you mean tool_agent?",
        ),
    ]


@check("DATA109", phase="first batch", examples=_examples, since="0.2")
def agent_loop_of_rows_unknown(
    configuration: Configuration, tables: DataTables, registries: VerlRegistries
) -> Iterator[Finding]:
    """Rows name an agent loop that this verl does not have.

    ## Why it matters

    The column `agent_name` chooses the agent loop of each row. verl looks the name up for the first batch,
    after the model is loaded: `Agent loop ... not registered`. Rows for validation fail at the first
    validation; if the job runs none, they do no harm.

    ## How to fix

    Use a name that the finding lists, or define the loop in the file that
    `actor_rollout_ref.rollout.agent.agent_loop_config_path` names.
    """
    known = registries.registries.get(AGENT_LOOP)
    open_ended = registries.extended_by and AGENT_LOOP not in registries.closed
    if known is None or open_ended or own_prompts(configuration):
        return
    for table, phase in used(tables, configuration):
        unknown = [name for name in table.agents if name not in known.names]
        if unknown:
            spared = takes_part(tables, configuration, table.file.role)
            near = closest(unknown[0], known.names, 0.5)
            yield Finding(
                f"{table.file.path}: this verl has no agent loop {listed(unknown, 3)}"
                + (f"; did you mean {near}?" if near else ""),
                Evidence(listed(unknown, 3), f"one of {listed(known.names, 6)}", known.read_from),
                location=location(table.file),
                remedy=(
                    f"use another name in the column agent_name, or name the file that defines it in {_FILE}"
                ),
                subject=Subject("file", table.file.path, ",".join(unknown)),
                stops=() if spared else (EVERY_JOB,),
                severity="warning" if spared else None,
                phase=phase,
            )
