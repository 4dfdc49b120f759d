"""How long `verl-doctor logs` takes for large logs, and how much memory, beside `grep -E` for the same texts.

    python tests/bench/bench_logs.py [MEGABYTES ...] [--write tests/bench/LOGS.md]

writes logs of these sizes (250, 500 and 1000) into a temporary folder: what a healthy run says, one fault in the middle, and what
follows from it at the end; and one that complains in each line. Each is read in a process of its own; the file is in the page cache.
`grep` gets each pattern as an extended regular expression, in the C locale. What the time line costs is the difference between reading
the lines that may tell with it and without it.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from measure import put_table
from support.logs.builder import DRIVER_SAW_IT, RAY, spoken, traceback

from verl_doctor.toolkit.logs.signature import signatures

READ = """
import sys
from verl_doctor.toolkit.logs.excerpt import excerpt
from verl_doctor.toolkit.logs.timeline.reader import TimelineReader
with open(sys.argv[1], "rb") as log:
    excerpt(log.read, beside=TimelineReader("run.log").take if sys.argv[2:] else None)
"""
FAULT = spoken(traceback("OSError: [Errno 24] Too many open files: 'x'"), RAY) + DRIVER_SAW_IT


def healthy(megabytes: int) -> Iterator[str]:
    """What a run says while all is well, with the fault in the middle."""
    size, told = 0, False
    for step in range(10**9):
        if size > megabytes * 1e6:
            return
        if not told and size > megabytes * 5e5:
            told = True
            yield FAULT
        said = (
            f"{RAY}INFO 11-20 10:{step % 60:02d}:07 [gpu_worker.py:357] Available KV cache memory: {step % 97}.5 GiB\n"
            f"(TaskRunner pid=7) step:{step} - actor/pg_loss:{step % 13 / 13:.4f} - critic/score/mean:{step % 7 / 7:.3f} - "
            f"response_length/mean:{step % 1009}.0 - perf/throughput:{step % 5003}.1 - timing_s/step:{step % 31}.2\n"
            f"Training Progress: {step % 100}%|####      | {step}/99999 [1:02:03<4:05:06, 2.{step % 10}s/it]\n"
        )
        size += len(said)
        yield said


def complaining(megabytes: int) -> Iterator[str]:
    """A log in which each line complains."""
    size = 0
    for at in range(10**9):
        if size > megabytes * 1e6:
            return
        said = f"{RAY}WARNING 11-20 10:00:07 [tool.py:{at % 999}] request {at} to the judge failed with error {at % 77}, it is tried again\n"
        size += len(said)
        yield said


def measured(command: list[str], **environ: str) -> tuple[float, float, float, str]:
    """Seconds, seconds of processor, peak MB, and the first line of what it said."""
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ})
    said = child.stdout.read() if child.stdout else ""
    _, _, used = os.wait4(child.pid, 0)
    child.returncode = 0
    return (
        time.perf_counter() - begun,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
        said.split("\n")[0],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="reading large logs beside grep -E")
    parser.add_argument("sizes", type=int, nargs="*", default=[250, 500, 1000], metavar="MEGABYTES")
    parser.add_argument("--write", type=Path, help="put the table into this file, where the last one is")
    options = parser.parse_args()
    if min(options.sizes) < 1:
        parser.error("a log has at least one megabyte")
    lines = []
    for line in table(options.sizes):
        print(line, flush=True)
        lines.append(line)
    if options.write:
        put_table(options.write, "\n".join(lines))


def table(sizes: Sequence[int]) -> Iterator[str]:
    """Each log, read by both, a line as soon as it is measured."""
    logs: list[tuple[str, int, Callable[[int], Iterator[str]]]] = [
        ("healthy", size, healthy) for size in sizes
    ]
    logs.append(("complaining", sizes[0], complaining))
    patterns = [
        ".*".join(
            re.escape(part)
            if isinstance(part, str)
            else f"{re.escape(part.before)}[0-9.]+{re.escape(part.after)}"
            for part in parts
        )
        for signature in signatures()
        for parts in signature.patterns
    ]
    load = os.getloadavg()[0]
    yield f"{os.cpu_count()} cores, load before {load:.1f}, {platform.machine()}, Python {platform.python_version()}."
    yield ""
    yield "| log | MB | reader | seconds | CPU seconds | MB of memory | first line |"
    yield "|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "patterns").write_text("\n".join(patterns) + "\n")
        for name, size, lines in logs:
            path = folder / "run.log"
            with path.open("w") as file:
                file.writelines(lines(size))
            doctor = [sys.executable, "-m", "verl_doctor.toolkit", "logs", str(path)]
            grep = ["grep", "-m", "1000", "-nE", "-f", str(folder / "patterns"), str(path)]
            for reader, command, locale in (
                ("verl-doctor logs", doctor, "C.UTF-8"),
                ("its reader of lines alone", [sys.executable, "-c", READ, str(path)], "C.UTF-8"),
                ("the same with the time line", [sys.executable, "-c", READ, str(path), "x"], "C.UTF-8"),
                (f"grep -E, {len(patterns)} patterns", grep, "C"),
            ):
                seconds, processor, peak, said = measured(command, LC_ALL=locale)
                yield f"| {name} | {size} | {reader} | {seconds:.1f} | {processor:.1f} | {peak:.0f} | {said[:60]} |"


if __name__ == "__main__":
    main()
