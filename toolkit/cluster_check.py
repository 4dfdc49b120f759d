"""`check` of many nodes: they are asked, and judged as one fleet; what was found so far is said while a person waits."""

from __future__ import annotations

import contextlib
import sys
import time

from verl_doctor.toolkit import cluster_source, fleet
from verl_doctor.toolkit.cluster_source import Watch, Way
from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.node_request import AskedNodes
from verl_doctor.toolkit.progress import announce
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.session import Session

_OFTEN = 5.0  # seconds between two lines about what was found so far, where no terminal shows it all the time


def report(nodes: AskedNodes, run: Session, collection: Collection, watch: Watch) -> Report:
    """Ask, judge, fold. Raises CouldNotAsk when there is nobody to ask."""
    way = cluster_source.way_to(nodes, run, collection)
    announce(way.says)
    return judged(way, run, collection, watch)


def judged(way: Way, run: Session, collection: Collection, watch: Watch) -> Report:
    """What the nodes that are reached so say, judged with a look at this machine."""
    # Closed at once when the user interrupts: what runs on the nodes must be told to stop.
    with contextlib.closing(cluster_source.answers(way, run, collection, watch)) as answers:
        return fleet.judge(answers, run, collection, _now_and_then(watch))


def _now_and_then(watch: Watch) -> Watch:
    """Tell the progress line everything, and a log a line now and then."""
    said = time.monotonic()

    def told(so_far: str) -> None:
        nonlocal said
        watch(so_far)
        if time.monotonic() - said > _OFTEN and not sys.stderr.isatty():
            said = time.monotonic()
            announce(f"so far: {so_far}")

    return told
