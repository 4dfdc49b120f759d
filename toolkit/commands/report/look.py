"""Collect the data of a report: the results of `check`, the plans of `fix`, and whatever else is requested.

Nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from verl_doctor.toolkit.cluster.node_request import RequestedNodes
from verl_doctor.toolkit.commands.report.seen import Seen
from verl_doctor.toolkit.engine.collect import Collection, Facts
from verl_doctor.toolkit.engine.examination import Request, Watch, examine
from verl_doctor.toolkit.engine.session import Session, version
from verl_doctor.toolkit.options.examination import are_several, source_of
from verl_doctor.toolkit.repair import repair
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.target import UsageError


@dataclass(frozen=True)
class LookRequest:
    """What to examine besides or instead of this machine.

    That is nodes, saved facts, logs, an older snapshot, and the package indexes.
    """

    nodes: RequestedNodes | None = None
    facts: tuple[Path, ...] = ()
    logs: tuple[str, ...] = ()
    old: Path | None = None
    network: bool = False


def look(run: Session, request: LookRequest, watch: Watch) -> Seen:
    """Examine all of it. Raises UsageError if a file is unusable, CouldNotQuery if no node can be queried."""
    if request.old is not None and are_several(request.facts):
        raise UsageError("--from compares one machine, or a cluster: name one file with --facts")
    report, facts, whose = _judged(run, request, watch)
    seen = Seen(report, facts, version(), datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), whose)
    if request.logs:
        seen = _with_logs(seen, request.logs)
    if request.network:
        from verl_doctor.toolkit.commands.report.network import try_indexes  # noqa: PLC0415 - nothing else goes to the network

        watch("querying the package indexes")
        seen = replace(seen, indexes=tuple(try_indexes(run.machine, run.target.prefix)))
    return seen if request.old is None else _compared(seen, run, request, watch)


def _judged(run: Session, request: LookRequest, watch: Watch) -> tuple[Report, Facts, str]:
    """Return the report, with plans if possible, and the facts of one machine.

    Also return the name of the machine if there are several.
    """
    source = source_of(request.facts, request.nodes, with_kept_nodes=False)
    run = replace(run, offline=True)
    found = examine(Request(run, source), watch)
    report = found.report if request.facts else repair.show(run, found.facts, found.report)
    return report, found.facts, found.facts_of


def _with_logs(seen: Seen, named: tuple[str, ...]) -> Seen:
    from verl_doctor.toolkit.logs import reading  # noqa: PLC0415 - a report without logs does without
    from verl_doctor.toolkit.logs.sources import sources_of  # noqa: PLC0415 - see above

    answer = reading.diagnose(sources_of(named))
    if not answer.files:
        raise UsageError("; ".join(answer.notes) or "there is nothing to read in the logs")
    return replace(seen, log=answer)


def _compared(seen: Seen, run: Session, request: LookRequest, watch: Watch) -> Seen:
    """Add the differences; nodes are queried once more, for all their facts."""
    from verl_doctor.toolkit.comparison.judge import compared  # noqa: PLC0415
    from verl_doctor.toolkit.snapshot import snapshot  # noqa: PLC0415 - a report without --from does without

    if request.old is None:
        return seen
    old = snapshot.read(request.old, run.registry.collectors)
    watch("comparing")
    if request.facts:
        new = snapshot.read(request.facts[0], run.registry.collectors)
    elif request.nodes is not None or not isinstance(seen.facts, Collection):
        new = snapshot.look(run, request.nodes, watch)
    else:
        new = snapshot.taken(run, seen.facts)
    return replace(seen, compared=compared(old, new, run))
