"""Looks for the nearest settings with which construction accepts the job.

Only a fix requires it: it takes up to two minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.construction.accepted import Accepted
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Absent, Unknown, collector
from verl_doctor.toolkit.machine import Machine

_LIMIT = 120.0  # seconds
_OF_ONE = 30.0  # seconds for a configuration; most take one to four


@collector(timeout=_LIMIT + 30, local=True)
def accepted(
    construction: Construction,
    configuration: Configuration,
    launch: Launch,
    interpreter: Interpreter,
    trees: VerlTrees,
    variables: Variables,
    job: JobVariables,
    processes: JobProcesses | Unknown,
    machine: Machine,
) -> Accepted | Absent | Unknown:
    """Build the job with other settings, one after the other, until no stage fails."""
    from verl_doctor.toolkit.collectors.construction.accepted_search import search  # noqa: PLC0415 - only where something is wrong
    from verl_doctor.toolkit.collectors.construction.child import builder  # noqa: PLC0415 - see above
    from verl_doctor.toolkit.collectors.construction.construction_collector import judged, request_of  # noqa: PLC0415 - see above

    if not any(built.ended == "breaks" for built in construction.stages):
        return Absent("no stage of the construction fails")
    request = request_of(configuration, launch, trees, machine, processes)
    if isinstance(request, Unknown):
        return request
    begun = time.monotonic()
    child = replace(machine, environ=child_environ(machine, variables, job))
    with builder(child, interpreter.executable, request, _LIMIT) as building:
        if isinstance(building, Unknown):
            return building

        def build(overrides: Iterable[str], until: str) -> Construction | Unknown:
            found = building.build({"overrides": list(overrides), "until": until}, _OF_ONE)
            return found if isinstance(found, Unknown) else judged(found, configuration, launch)

        as_it_is = build(request["overrides"], "")
        if isinstance(as_it_is, Unknown):
            return as_it_is
        if _faults(as_it_is) != _faults(construction):
            return Unknown("in a process that builds several jobs the job fails in another way")
        found = search(as_it_is, configuration, request["overrides"], build, machine.cwd)
    return replace(found, seconds=round(time.monotonic() - begun, 1))


def _faults(construction: Construction) -> set[tuple[str, str]]:
    return {(built.stage, built.kind) for built in construction.stages if built.ended == "breaks"}
