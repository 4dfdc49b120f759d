"""Warming the page cache: the doctor beside vmtouch, cat, dd, threads with preadv, and fio, on the same files, cold each time.

    python tests/bench/bench_warm.py [--folder DIR] [--files 8] [--size MIB] [--rounds 5]

Makes its own files in a folder on a disk, about 4 GB, and removes them. Each round runs every method once, in an order that is
rotated from round to round; before each run the files are evicted (POSIX_FADV_DONTNEED) and looked at: nothing of them is
resident. Seconds are those of the whole command, its start included; for the doctor and for fio those of the reading alone stand
beside them. `resident` is looked at by this program, and not what the method says. vmtouch and fio are left out, and said to be,
where they are not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.evicted import cached_share, evict

# Reads with so many threads into one buffer each, as a program of one's own would.
PREADV = """
import os, queue, sys, threading
threads, piece = int(sys.argv[1]), 8 << 20
pieces = queue.SimpleQueue()
for path in sys.argv[2:]:
    file = os.open(path, os.O_RDONLY)
    for start in range(0, os.fstat(file).st_size, piece):
        pieces.put((file, start))
def work():
    buffer = bytearray(piece)
    while True:
        try:
            file, start = pieces.get_nowait()
        except queue.Empty:
            return
        os.preadv(file, [buffer], start)
started = [threading.Thread(target=work) for _ in range(threads)]
for thread in started:
    thread.start()
for thread in started:
    thread.join()
"""


@dataclass(frozen=True)
class Run:
    """One run. Seconds; `reading` is the part that the method itself calls reading, `peak_mb` that of its largest process."""

    seconds: float
    cpu: float
    peak_mb: float
    resident: float
    reading: float | None


@dataclass(frozen=True)
class Method:
    """A command that is given the files, and what it says of the time that it read."""

    name: str
    command: Callable[[Sequence[Path]], list[str]]
    reading: Callable[[str], float | None] = lambda _: None
    needs: str = ""


def _fio(*more: str) -> Callable[[Sequence[Path]], list[str]]:
    def command(files: Sequence[Path]) -> list[str]:
        named = ":".join(map(str, files))
        return [
            *("fio", "--name=warm", "--rw=read", f"--filename={named}", "--readonly", "--invalidate=0"),
            *("--file_service_type=sequential", "--output-format=json", "--group_reporting", *more),
        ]

    return command


def _fio_said(text: str) -> float:
    return max(job["read"]["runtime"] for job in json.loads(text)["jobs"]) / 1000


def _doctor_said(text: str) -> float:
    return float(json.loads(text)["nodes"][0]["pages"]["seconds"])


def _doctor(files: Sequence[Path]) -> list[str]:
    words = [word for file in files for word in ("--path", str(file))]
    return [
        sys.executable,
        "-m",
        "verl_doctor.toolkit",
        "warmup",
        "--format",
        "json",
        *words,
    ]


def _preadv(threads: int) -> Callable[[Sequence[Path]], list[str]]:
    return lambda files: [sys.executable, "-c", PREADV, str(threads), *map(str, files)]


def _dd(files: Sequence[Path]) -> list[str]:
    return [
        "sh",
        "-c",
        'for file; do dd if="$file" of=/dev/null bs=16M status=none; done',
        "sh",
        *map(str, files),
    ]


METHODS = (
    Method("verl-doctor warmup", _doctor, _doctor_said),
    Method("vmtouch -t", lambda files: ["vmtouch", "-qt", *map(str, files)], needs="vmtouch"),
    Method("cat > /dev/null", lambda files: ["sh", "-c", 'cat "$@" > /dev/null', "sh", *map(str, files)]),
    Method("dd bs=16M", _dd),
    *(Method(f"preadv, {threads} threads", _preadv(threads)) for threads in (1, 2, 4, 8)),
    Method("fio, buffered, 1 job", _fio("--bs=1M", "--ioengine=psync"), _fio_said, "fio"),
    Method(
        "fio, direct, queue of 16",
        _fio("--bs=1M", "--direct=1", "--ioengine=libaio", "--iodepth=16"),
        _fio_said,
        "fio",
    ),
)


def main() -> None:
    """Make the files, run the rounds, print the table."""
    parser = argparse.ArgumentParser(description="Warm files in several ways, cold each time.")
    parser.add_argument(
        "--folder", default=tempfile.gettempdir(), help="a folder on a disk with room for the files"
    )
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--size", type=int, default=512, help="MiB of each file")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    for method in METHODS:
        if method.needs and shutil.which(method.needs) is None:
            print(f"{method.name}: {method.needs} is not installed, left out", file=sys.stderr)
    methods = [method for method in METHODS if not method.needs or shutil.which(method.needs)]
    with tempfile.TemporaryDirectory(prefix="verl-doctor-bench-warm-", dir=given.folder) as folder:
        files = [
            _made(Path(folder, f"model-{number:02}.safetensors"), given.size) for number in range(given.files)
        ]
        runs: dict[str, list[Run]] = {method.name: [] for method in methods}
        for turn in range(given.rounds):
            first = turn * 3 % len(methods)
            for method in (*methods[first:], *methods[:first]):
                runs[method.name].append(_run(method, files))
    _print(runs, given.files * given.size << 20, given.rounds)


def _made(path: Path, mebibytes: int) -> Path:
    with path.open("wb") as file:
        for _ in range(mebibytes):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    return path


def _run(method: Method, files: Sequence[Path]) -> Run:
    for file in files:
        evict(file)
    with tempfile.TemporaryFile() as said:
        begun = time.perf_counter()
        process = subprocess.Popen(method.command(files), stdout=said, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode()
    assert process.returncode == 0, f"{method.name} ended with {process.returncode}"
    resident = statistics.mean(map(cached_share, files))
    return Run(
        seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, resident, method.reading(text)
    )


def _print(runs: dict[str, list[Run]], size: int, rounds: int) -> None:
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}: "
    )
    print(f"{size / 1e9:.2f} GB, {rounds} rounds\n")
    print(
        "| method | seconds, median [least-most] | reading alone | GB/s | CPU s | peak MB | resident | times the doctor's |"
    )
    print("|---|---|---|---|---|---|---|---|")
    ours = statistics.median(run.seconds for run in next(iter(runs.values())))
    for name, every in runs.items():
        seconds = [run.seconds for run in every]
        reading = [run.reading for run in every if run.reading is not None]
        median = statistics.median(seconds)
        cells = (
            name,
            f"{median:.2f} [{min(seconds):.2f}-{max(seconds):.2f}]",
            f"{statistics.median(reading):.2f}" if reading else "",
            f"{size / median / 1e9:.2f}",
            f"{statistics.median(run.cpu for run in every):.2f}",
            f"{max(run.peak_mb for run in every):.0f}",
            f"{statistics.median(run.resident for run in every):.3f}",
            f"{median / ours:.2f}",
        )
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
