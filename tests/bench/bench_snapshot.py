"""What a snapshot of many nodes costs to take, to read and to compare: time, memory, and the size of the file.

    python tests/bench/bench_snapshot.py [--nodes 100 1000] [--write tests/bench/SNAPSHOT.md]

The nodes are those of `bench_fleet.py`, no two of which say the same. The snapshot is compared with itself: each node with its own
earlier facts, and both sides judged by all rules. Each size runs in processes of its own, whose peak memory is told; making the
answers up does not count.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_fleet import made
from measure import put_table
from support.machine_facts import known, machine

from verl_doctor.toolkit.comparison.judge import compared
from verl_doctor.toolkit.engine.config import Config
from verl_doctor.toolkit.engine.judge import Selection
from verl_doctor.toolkit.engine.session import Session, version
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.snapshot import snapshot
from verl_doctor.toolkit.snapshot.nodes import FoldedNodes
from verl_doctor.toolkit.snapshot.snapshot import Snapshot
from verl_doctor.toolkit.target import Target

HEAD = "| nodes | file MB | take CPU s | take peak MB | read CPU s | compare CPU s | compare peak MB |"


def take(count: int, file: Path) -> dict[str, float]:
    """Fold the answers of so many nodes and write them."""
    nodes = FoldedNodes()
    spent = 0.0
    for number in range(count):
        answer = made(number)
        begun = time.process_time()
        nodes.add(answer)
        spent += time.process_time() - begun
    begun = time.process_time()
    seen = Snapshot(machine("head-node-of-two"), version(), "2026-11-22T00:00:00Z", "head", nodes)
    file.write_text(snapshot.dump(seen, known().collectors))
    return {
        "take": spent + time.process_time() - begun,
        "take_peak": _peak(),
        "size": file.stat().st_size / 1e6,
    }


def compare(file: Path) -> dict[str, float]:
    """Read it twice and compare the two."""
    target = Target(Path(sys.executable), chosen_by="--python")
    session = Session(Machine(), target, Config(), known(), Selection())
    begun = time.process_time()
    old = snapshot.read(file, known().collectors)
    read = time.process_time()
    found = compared(old, snapshot.read(file, known().collectors), session)
    if found.differences:
        raise SystemExit(f"a snapshot differs from itself: {found.differences[0]}")
    return {"read": read - begun, "compare": time.process_time() - read, "compare_peak": _peak()}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main() -> int:
    """Measure each size, and print or keep the table."""
    parser = argparse.ArgumentParser(description="the cost of snapshots")
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--write", type=Path, help="put the table into this file, where the last one is")
    parser.add_argument("--take", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--compare", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.take:
        print(json.dumps(take(int(options.take[0]), Path(options.take[1]))))
    elif options.compare:
        print(json.dumps(compare(Path(options.compare))))
    else:
        table = "\n".join(_table([_measured(count) for count in options.nodes]))
        print(table)
        if options.write:
            put_table(options.write, table)
    return 0


def _measured(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/snapshot.json"
        return {"nodes": count, **_apart("--take", str(count), file), **_apart("--compare", file)}


def _apart(*words: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def _table(rows: Sequence[dict[str, float]]) -> Iterator[str]:
    yield HEAD
    yield "|" + "---|" * (HEAD.count("|") - 1)
    for row in rows:
        yield (
            f"| {row['nodes']:,} | {row['size']:.1f} | {row['take']:.1f} | {row['take_peak']:.0f} | {row['read']:.1f} "
            f"| {row['compare']:.1f} | {row['compare_peak']:.0f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
