"""What comparing the installed files with their wheels' RECORD costs.

    python tests/bench/bench_records.py ENVIRONMENT/bin/python [--write tests/bench/RECORDS.md] [--drop-caches]

`check` looks at sizes and times and hashes only what looks suspicious; `check --deep` hashes everything, several files
at once, and remembers the hashes by device, inode, size and time. `--drop-caches` (root, Linux) empties the page cache
before each first look; without it the files may be in memory already, and the table says so.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from verl_doctor.toolkit.collectors.packages.records import HashedRecords, Records
from verl_doctor.toolkit.engine.session import Session, open_session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.target import Options


def main() -> int:
    parser = argparse.ArgumentParser(description="the cost of comparing with RECORD")
    parser.add_argument("python", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--drop-caches", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, XDG_CACHE_HOME=home)
        session = open_session(Options(python=options.python.absolute()))
        timed = {}
        for label, fact in (("sizes and times", Records), ("every file hashed", HashedRecords)):
            if options.drop_caches:
                subprocess.run("sync; echo 3 > /proc/sys/vm/drop_caches", shell=True, check=True)
            timed[label] = [_seconds(session, fact) for _ in range(4)]
        text = _table(session, timed, dropped=options.drop_caches)
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    return 0


def _seconds(session: Session, fact: type) -> float:
    """Collect one fact in a fresh look; what it is read from is collected before and not counted."""
    collection = session.look()
    collector = next(part for part in session.registry.collectors if part.fact is fact)
    for need in collector.needs:
        collection.get(need.fact)
    started = time.perf_counter()
    answer = collection.get(fact)
    assert not isinstance(answer, Unknown), answer
    return time.perf_counter() - started


def _table(session: Session, timed: dict[str, list[float]], *, dropped: bool) -> str:
    records = session.look().get(Records)
    assert isinstance(records, Records)
    site = next(path for path in session.target.prefix.glob("lib/python*/site-packages"))
    size = sum(path.lstat().st_size for path in site.rglob("*") if path.is_file())
    packages = ", ".join(f"{package.package} {package.version}" for package in records.packages)
    lines = [
        "# What the RECORD check costs",
        "",
        f"{packages}: {sum(package.files for package in records.packages)} files compared, in an environment of",
        f"{size / 1e9:.1f} GB; {os.cpu_count()} cores; page cache {'empty' if dropped else 'as it was'} before the first look.",
        "",
        "| what is compared | first look s | later looks s |",
        "|---|---|---|",
    ]
    lines += [
        f"| {label} | {first:.2f} | {', '.join(f'{t:.2f}' for t in later)} |"
        for label, (first, *later) in timed.items()
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
