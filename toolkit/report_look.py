"""Looking for a report: what `check` does, the plans of `fix`, and what was asked for besides. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from verl_doctor.toolkit import repair
from verl_doctor.toolkit.collect import Collection, Facts
from verl_doctor.toolkit.node_request import AskedNodes
from verl_doctor.toolkit.report_seen import HERE, Seen
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.session import Session, version
from verl_doctor.toolkit.target import UsageError

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """What is to be seen besides this machine, or instead of it: nodes, facts that were saved, logs, an older snapshot, the package indexes."""

    nodes: AskedNodes | None = None
    facts: tuple[Path, ...] = ()
    logs: tuple[str, ...] = ()
    old: Path | None = None
    network: bool = False


def look(run: Session, asked: Asked, watch: Watch) -> Seen:
    """See all of it. Raises UsageError when a file is of no use, CouldNotAsk when there is nobody to ask."""
    if asked.old is not None and _are_several(asked.facts):
        raise UsageError("--from compares one machine, or a cluster: name one file with --facts")
    report, facts, whose = _judged(run, asked, watch)
    seen = Seen(report, facts, version(), datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), whose)
    if asked.logs:
        seen = _with_logs(seen, asked.logs)
    if asked.network:
        from verl_doctor.toolkit.report_network import try_indexes  # noqa: PLC0415 - nothing else goes to the network

        watch("asking the package indexes")
        seen = replace(seen, indexes=tuple(try_indexes(run.machine, run.target.prefix)))
    return seen if asked.old is None else _compared(seen, run, asked, watch)


def _judged(run: Session, asked: Asked, watch: Watch) -> tuple[Report, Facts, str]:
    """The report, with the plans where plans can be made; the facts of one machine, and its name where there are several."""
    if _are_several(asked.facts):
        from verl_doctor.toolkit import fleet  # noqa: PLC0415 - most reports are of one machine

        report = fleet.judge_files(asked.facts, run, watch)
        first = _first(asked.facts)
        return report, replace(run, facts_file=first).look(), first.stem
    collection = run.look()
    if asked.nodes is not None:
        from verl_doctor.toolkit import cluster_check  # noqa: PLC0415 - see above

        report = cluster_check.report(asked.nodes, run, collection, watch)
        return repair.show(run, collection, report), collection, HERE
    report = run.check(collection, watch)
    return (report if asked.facts else repair.show(run, collection, report)), collection, ""


def _are_several(files: Sequence[Path]) -> bool:
    return len(files) > 1 or any(os.path.isdir(path) for path in files)


def _first(files: Sequence[Path]) -> Path:
    """The first of the facts files; a folder stands for those in it."""
    return min(files[0].glob("*.json")) if os.path.isdir(files[0]) else files[0]


def _with_logs(seen: Seen, named: tuple[str, ...]) -> Seen:
    from verl_doctor.toolkit import log_reading  # noqa: PLC0415 - a report without logs does without
    from verl_doctor.toolkit.log_sources import sources_of  # noqa: PLC0415 - see above

    answer = log_reading.diagnose(sources_of(named))
    if not answer.files:
        raise UsageError("; ".join(answer.notes) or "there is nothing to read in the logs")
    return replace(seen, log=answer)


def _compared(seen: Seen, run: Session, asked: Asked, watch: Watch) -> Seen:
    """With the differences; nodes are asked once more, for all that they can tell."""
    from verl_doctor.toolkit import snapshot  # noqa: PLC0415 - a report without --from does without
    from verl_doctor.toolkit.compare_judge import compared  # noqa: PLC0415 - see above

    if asked.old is None:
        return seen
    old = snapshot.read(asked.old, run.registry.collectors)
    watch("comparing")
    if asked.facts:
        new = snapshot.read(asked.facts[0], run.registry.collectors)
    elif asked.nodes is not None or not isinstance(seen.facts, Collection):
        new = snapshot.look(run, asked.nodes, watch)
    else:
        new = snapshot.taken(run, seen.facts)
    return replace(seen, compared=compared(old, new, run))
