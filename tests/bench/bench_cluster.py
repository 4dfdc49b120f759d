"""How long `check --cluster` takes on a local cluster of N raylets, what travels, and what is left behind.

    python tests/bench/bench_cluster.py 10 [20 ...]

All raylets share this machine's cores, as nodes do not: what is measured is the cores, not the nodes. Ray comes from the
environment that the tests keep; see `tests/support/ray/cluster.py`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.ray import head
from support.ray.cluster import Cluster, cluster

from verl_doctor.toolkit.cluster.node_parcel import parcel_for
from verl_doctor.toolkit.cluster.through_ray import RayDriver, node_responses
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.target import Options

LOOKS = 3
BUDGET = 200.0  # seconds


def looked(running: Cluster) -> dict[str, float]:
    """One look: the figures of it, in seconds and bytes."""
    begun = time.monotonic()
    session = open_session(Options(python=running.python))
    parcel = parcel_for(session, session.look())
    packed = time.monotonic()
    driver = RayDriver(str(running.python), running.address, {"RAY_AUTH_MODE": "disabled"})
    first, said, missing, answers = 0.0, 0, 0, 0
    for answer in node_responses(Machine(), driver, parcel, BUDGET):
        first = first or time.monotonic() - packed
        answers += 1
        missing += bool(answer.missing)
        said += sum(map(len, answer.facts.values()))
    return {
        "parcel": len(parcel.content),
        "prepared": packed - begun,
        "first": first,
        "last": time.monotonic() - packed,
        "answers": answers,
        "missing": missing,
        "facts": said / max(answers - missing, 1),
    }


def main(sizes: list[int]) -> None:
    """Print a table."""
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, Ray {head.VERSION}"
    )
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}\n")
    print(
        "| nodes | cluster up s | parcel kB | prepare s | first answer s | all answers s | missing | facts kB each |"
    )
    print("|---|---|---|---|---|---|---|---|")
    python = head.environment() / "bin" / "python"
    for nodes in sizes:
        begun = time.monotonic()
        with (
            tempfile.TemporaryDirectory() as folder,
            cluster(python, nodes, each=({"TMPDIR": folder},) * nodes) as running,
        ):
            up = time.monotonic() - begun
            for _ in range(LOOKS):
                at = looked(running)
                print(
                    f"| {nodes} | {up:.0f} | {at['parcel'] / 1e3:.0f} | {at['prepared']:.1f} | {at['first']:.1f} "
                    f"| {at['last']:.1f} | {at['missing']:.0f} | {at['facts'] / 1e3:.0f} |",
                    flush=True,
                )
            left = [path.name for path in Path(folder).iterdir() if "verl-doctor" in path.name]
            print(f"\nleft behind: {json.dumps(left)}\n" if left else "", end="")


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [10])
