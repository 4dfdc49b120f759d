"""`check` of many nodes: they are asked, and judged as one fleet; what was found so far is said while a person waits."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable

from verl_doctor.toolkit import cluster_source, fleet
from verl_doctor.toolkit.collect import Collection
from verl_doctor.toolkit.node_request import AskedNodes
from verl_doctor.toolkit.result import Report
from verl_doctor.toolkit.session import Session
from verl_doctor.toolkit.text import harmless

_OFTEN = 5.0  # seconds between two lines about what was found so far, where no terminal shows it all the time


def report(nodes: AskedNodes, run: Session, collection: Collection, watch: Callable[[str], None]) -> Report:
    """Ask, judge, fold. Raises CouldNotAsk when there is nobody to ask."""
    # Closed at once when the user interrupts: what runs on the nodes must be told to stop.
    with contextlib.closing(cluster_source.answers(nodes, run, collection, _say, watch)) as answers:
        return fleet.judge(answers, run, collection, _now_and_then(watch))


def _say(sentence: str) -> None:
    print(f"verl-doctor {harmless(sentence)}", file=sys.stderr, flush=True)


def _now_and_then(watch: Callable[[str], None]) -> Callable[[str], None]:
    """Tell the progress line everything, and a log a line now and then."""
    said = time.monotonic()

    def told(so_far: str) -> None:
        nonlocal said
        watch(so_far)
        if time.monotonic() - said > _OFTEN and not sys.stderr.isatty():
            said = time.monotonic()
            _say(f"so far: {so_far}")

    return told
