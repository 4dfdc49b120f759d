"""How good the predictions of LOAD114 are: seconds predicted from 240 MiB beside those that vLLM's own loader takes, cold and warm.

    python tests/bench/bench_load.py ENVIRONMENT/bin/python FOLDER [--gib 1] [--rounds 3] [--loop] [--write tests/bench/LOAD.md]

ENVIRONMENT has vLLM; its `safetensors_weights_iterator` reads every tensor and copies it, without a GPU. FOLDER is emptied afterwards. With
`--loop` (root, Linux) the model also lies on a loop device, whose read-ahead can be made as small as that of NFS without slowing anybody else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from real_load import take_out

from verl_doctor.checks.loading._load_prediction import in_seconds, rate, reading
from verl_doctor.toolkit.collectors.model.files import ModelFiles, model_files
from verl_doctor.toolkit.collectors.model.load_speed import LoadSpeed, load_speed
from verl_doctor.toolkit.collectors.model.model import Model
from verl_doctor.toolkit.collectors.model.storage import model_storage
from verl_doctor.toolkit.machine import Machine
from verl_doctor.toolkit.text import in_bytes

HERE = Path(__file__).parent
SHARDS = 4
TENSOR = 24 << 20  # bytes
STRATEGIES = ("lazy", "warm", "prefetch", "eager")
READ_AHEAD = (8192, 128, 16)  # KiB, of the loop device


def main() -> int:
    parser = argparse.ArgumentParser(description="predicted and measured seconds of loading")
    parser.add_argument("python", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loop", action="store_true")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    try:
        write_model(options.folder / "model", int(options.gib * (1 << 30)))
        rows.append(measured("the machine's disk", options.folder / "model", options.python, options.rounds))
        if options.loop:
            with loop_device(options.folder) as (device, mounted):
                for kib in READ_AHEAD:
                    Path(f"/sys/block/{device}/queue/read_ahead_kb").write_text(str(kib))
                    rows.append(measured("a loop device", mounted / "model", options.python, options.rounds))
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)
    text = table(rows, options.gib, options.rounds)
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    return 0


def write_model(folder: Path, size: int) -> None:
    """Random weights in four shards, as `save_pretrained` lays them out."""
    folder.mkdir()
    for number in range(SHARDS):
        header, end = {}, 0
        for place in range(size // SHARDS // TENSOR):
            begin, end = end, end + TENSOR
            header[f"model.layers.{number}.mlp.{place}.weight"] = {
                "dtype": "BF16",
                "shape": [TENSOR // 2048, 1024],
                "data_offsets": [begin, end],
            }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / f"model-{number}.safetensors").open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _ in range(end >> 20):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def loop_device(folder: Path) -> Iterator[tuple[str, Path]]:
    """The model on a file system in a file: the name of its device, and where it is mounted."""
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    size = sum(path.stat().st_size for path in (folder / "model").iterdir())
    image.touch()
    os.truncate(image, size * 11 // 10 + (64 << 20))
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    command = ["losetup", "--find", "--show", "--direct-io=on", image]
    device = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    try:
        subprocess.run(["mount", device, mounted], check=True)
        try:
            shutil.move(folder / "model", mounted / "model")
            os.sync()
            yield Path(device).name, mounted
        finally:
            subprocess.run(["umount", mounted], check=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


@dataclass(frozen=True)
class Row:
    """One place: what the doctor predicted in each round, and how many seconds vLLM took in each, by strategy."""

    where: str
    read_ahead: int
    mapped: float
    best: float
    seconds: Mapping[str, list[float]]


def measured(where: str, folder: Path, python: Path, rounds: int) -> Row:
    """Predict from cold files and let vLLM load them, in turns."""
    files = model_files.collect(Model(str(folder), "--model"))
    assert isinstance(files, ModelFiles), files
    paths = [str(folder / file.name) for file in files.files]
    speeds = []
    seconds: dict[str, list[float]] = {}
    command = [python, HERE / "real_load.py", folder, *STRATEGIES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as loader:
        assert loader.stdin is not None
        assert loader.stdout is not None
        while loader.stdout.readline() != "ready\n":
            assert loader.poll() is None
        for _ in range(rounds):
            take_out(paths)
            storage = model_storage.collect(Machine(), files)
            speed = load_speed.collect(Machine(), files, storage)
            assert isinstance(speed, LoadSpeed), speed
            told = reading(storage, speed, 1, fits=True)
            assert told is not None
            speeds.append(speed)
            print("go", file=loader.stdin, flush=True)
            took = json.loads(
                next(line for line in loader.stdout if line.startswith("{"))
            )  # vLLM logs there too
            for name, value in {
                "cold": told.cold,
                "from memory": told.warm,
                "ahead": told.ahead,
                **took,
            }.items():
                seconds.setdefault(name, []).append(value)
        loader.stdin.close()
    return Row(
        where,
        storage.read_ahead or 0,
        statistics.median(rate(speed.mapped) for speed in speeds),
        statistics.median(speed.best for speed in speeds),
        seconds,
    )


def table(rows: list[Row], gib: float, rounds: int) -> str:
    lines = [
        "# Predicted and measured seconds of loading",
        "",
        f"{gib:g} GiB of weights in {SHARDS} shards; {os.cpu_count()} CPUs, Linux {os.uname().release}, as of {time.strftime('%Y-%m-%d')};",
        f"load average {os.getloadavg()[1]:.0f}; medians of {rounds} rounds, smallest and largest in brackets. Predicted by what LOAD114 measures with parts of the files;",
        "measured is vLLM's `safetensors_weights_iterator` in each strategy, with a copy of each tensor into one buffer.",
        "",
        "| where, read-ahead | mapped | best | cold: predicted | `lazy` | read ahead: predicted | `prefetch` | `eager` | from memory: predicted | `lazy` |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            f"{row.where}, {in_bytes(row.read_ahead)}",
            f"{in_bytes(row.mapped)}/s",
            f"{in_bytes(row.best)}/s",
            *(
                spread(row.seconds[name])
                for name in ("cold", "lazy", "ahead", "prefetch", "eager", "from memory", "warm")
            ),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def spread(values: list[float]) -> str:
    return f"{in_seconds(statistics.median(values))} [{min(values):.1f}-{max(values):.1f}]"


if __name__ == "__main__":
    sys.exit(main())
