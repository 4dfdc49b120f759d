"""What judging and folding the answers of many nodes costs: time, memory, and how both and the report grow.

    python tests/bench/bench_fleet.py [--nodes 100 1000 10000] [--write tests/bench/FLEET.md]

The nodes are the recorded H200 node, each with its own name, address, GPUs, processes, free memory and temperatures, behind a
head without GPUs; of a hundred one is dead, and one differs in one of six ways. Their answers are packed as nodes pack them,
and unpacking and decoding them counts. They are made one after the other while others are judged, as they arrive from a
cluster; what making them takes is not counted. Each size runs in a process of its own, whose peak memory is told.
"""

from __future__ import annotations

import argparse
import base64
import functools
import json
import os
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import put_table
from support.fleets import Edit, dead, node, with_value, with_version
from support.machine_facts import known

from verl_doctor.toolkit.cluster import fleet, node_reader
from verl_doctor.toolkit.cluster.node_response import NodeResponse
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.session import Session
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.render import text as render_text
from verl_doctor.toolkit.render.document import document
from verl_doctor.toolkit.target import Target

DRIFTS: Sequence[Edit] = (
    with_version("vllm", "0.10.2"),
    with_version("ray", "2.40.0"),
    with_value("Gpus", "driver", "550.54.14"),
    with_value("Variables", "values.NCCL_IB_HCA", "mlx5_0"),
    with_value("HostLimits", "shell.files.soft", 1024),
    with_value("Folders", "folders.0.free", 2**20),
)
HEAD = "| nodes | seconds | CPU s | folding and comparing s | CPU ms a node | peak MB | findings | JSON kB | text lines |"


class Stopwatch:
    """Hands answers on, and knows how long making them took."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.seconds = 0.0
        self.cpu = 0.0
        self.bytes = 0

    def answers(self) -> Iterator[NodeResponse]:
        for number in range(self._count):
            begun, cpu = time.perf_counter(), time.process_time()
            answer = made(number)
            sent = json.dumps({"facts": {name: _packed(text) for name, text in answer.facts.items()}})
            self.bytes += len(sent)
            self.seconds += time.perf_counter() - begun
            self.cpu += time.process_time() - cpu
            yield answer if answer.missing else replace(answer, facts=node_reader.read(sent)[0])


def made(number: int) -> NodeResponse:
    """One node: a head, a dead one, one that differs, or one of the many."""
    name = f"node{number:05}"
    if number == 0:
        return node("head", machine="head-node-of-two")
    if number % 100 == 50:
        return dead(name)
    edits = [DRIFTS[number // 100 % len(DRIFTS)]] if number % 100 == 75 else []
    return node(name, *edits)


@functools.lru_cache(4096)
def _packed(text: str) -> str:
    """As `node_program` packs an entry."""
    return base64.b64encode(zlib.compress(text.encode("ascii"), 6)).decode("ascii")


def one(count: int) -> dict[str, float]:
    """Judge so many nodes in this process."""
    session = Session(
        Machine(), Target(Path(sys.executable), chosen_by="--python"), Config(), known(), Selection()
    )
    begun, cpu = time.perf_counter(), time.process_time()
    watch = Stopwatch(count)
    gathering = fleet.Gathering(session)
    for answer in watch.answers():
        gathering.add(answer)
    folding = time.perf_counter()
    report = fleet.report_on(gathering, session, f"{count} simulated nodes")
    ended = time.perf_counter()
    return {
        "nodes": count,
        "seconds": ended - begun - watch.seconds,
        "cpu": time.process_time() - cpu - watch.cpu,
        "folding": ended - folding,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "findings": sum(1 for _ in report.findings()),
        "json": len(json.dumps(document(report))) / 1000,
        "lines": sum(1 for _ in render_text.render(report, width=80)),
        "sent": watch.bytes / count / 1000,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="the cost of judging many nodes")
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 10000])
    parser.add_argument("--write", type=Path, help="put the table into this file, where the last one is")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one)))
        return 0
    table = "\n".join(_table([_apart(count) for count in options.nodes]))
    print(table)
    if options.write:
        put_table(options.write, table)
    return 0


def _apart(count: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--one", str(count)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def _table(rows: Sequence[dict[str, float]]) -> Iterator[str]:
    yield f"{os.cpu_count()} cores, of which one is used; Python {sys.version.split()[0]}; {rows[-1]['sent']:.0f} kB sent by each node."
    yield ""
    yield HEAD
    yield "|" + "---|" * HEAD.count(" | ") + "---|"
    for row in rows:
        each = 1000 * row["cpu"] / row["nodes"]
        yield (
            f"| {row['nodes']:,.0f} | {row['seconds']:.2f} | {row['cpu']:.2f} | {row['folding']:.2f} | {each:.2f} | {row['peak']:.0f} "
            f"| {row['findings']:.0f} | {row['json']:.0f} | {row['lines']:.0f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
