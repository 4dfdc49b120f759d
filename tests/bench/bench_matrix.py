"""What `matrix` costs: bytes and seconds for reading releases out of their wheels, and for judging them.

    python tests/bench/bench_matrix.py [--verl 0.6.1] [--write tests/bench/MATRIX.md] [VERSION...]

Asks the package index that pip is configured for here. Every release is read with an empty cache, then judged against
the verl release, then the whole command is run with an empty and with a full cache.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from measure import Run, run

from verl_doctor.toolkit.commands.matrix.releases import release_of, releases
from verl_doctor.toolkit.index.listing import PackageIndex
from verl_doctor.toolkit.index.settings import index_settings
from verl_doctor.toolkit.index.web import Part, Web
from verl_doctor.toolkit.index.wheel_sources import WheelSources
from verl_doctor.toolkit.machine import Machine

_RELEASES = ("0.8.5", "0.10.2", "0.12.0", "0.18.1", "0.24.0", "0.33.0")


@dataclass(frozen=True)
class Read:
    """One release: bytes of its wheel and of what was fetched, files, and seconds."""

    version: str
    size: int
    received: int
    requests: int
    files: int
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description="what matrix costs")
    parser.add_argument("releases", nargs="*", default=_RELEASES)
    parser.add_argument("--verl", default="0.6.1")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["XDG_CACHE_HOME"] = f"{home}/reading"
        reads = [_read(version) for version in options.releases]
        pairs = [_judge(options.verl, version, home) for version in options.releases]
        command = [sys.executable, "-m", "verl_doctor.toolkit", "matrix", "--verl", options.verl]
        environ = {**os.environ, "XDG_CACHE_HOME": f"{home}/command"}
        cold, warm = (run(command, environ, home) for _ in range(2))
        offline = run([*command, "--offline"], environ, home)
    lines = [
        "# What `verl-doctor matrix` costs",
        "",
        f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.0f} when done), {platform.machine()}, Python {platform.python_version()}, one run each. Wheels of vllm, from",
        "the configured index; times depend on the way there and on what else runs.",
        "",
        "| vLLM | wheel MB | fetched MB | requests | Python files | seconds |",
        "|---|---|---|---|---|---|",
        *(
            f"| {r.version} | {r.size / 1e6:.0f} | {r.received / 1e6:.1f} | {r.requests} | {r.files} | {r.seconds:.2f} |"
            for r in reads
        ),
        "",
        f"Judging one release against verl {options.verl}, its sources in the cache (whole command, one process):",
        "",
        "| vLLM | first time s | CPU s | peak MB | again s | CPU s |",
        "|---|---|---|---|---|---|",
        *(
            f"| {version} | {first.wall:.2f} | {first.cpu:.2f} | {first.peak_mb:.0f} | {again.wall:.2f} | {again.cpu:.2f} |"
            for version, first, again in pairs
        ),
        "",
        f"`verl-doctor matrix --verl {options.verl}`, the releases that it chooses itself:",
        "",
        "| cache | wall s | CPU s of the command and those that it waited for | peak MB of one process |",
        "|---|---|---|---|",
        *(
            f"| {name} | {done.wall:.1f} | {done.cpu:.1f} | {done.peak_mb:.0f} |"
            for name, done in (("empty", cold), ("full", warm), ("full, --offline", offline))
        ),
        "",
    ]
    text = "\n".join(lines)
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    return 0


class _Counting(Web):
    """Counts requests for ranges, and remembers how long the file is."""

    requests = 0
    size = 0

    def part(self, url: str, span: str) -> Part:
        self.requests += 1
        part = super().part(url, span)
        assert isinstance(part, Part), "this index refuses ranges"
        self.size = part.total
        return part


def _read(version: str) -> Read:
    settings = index_settings(Machine(), Path(sys.prefix))
    web = _Counting(settings)
    wheels = PackageIndex(settings, web).listing("vllm").wheels
    found = releases("vllm", [wheel for wheel in wheels if platform.machine() in wheel.filename], None)
    before, started = web.received, time.perf_counter()
    unpacked = WheelSources(web).of(release_of(found, version).wheel)
    seconds = time.perf_counter() - started
    web.close()
    files = sum(1 for _ in unpacked.folder.rglob("*.py"))
    return Read(version, web.size, web.received - before, web.requests, files, seconds)


def _judge(verl: str, version: str, home: str) -> tuple[str, Run, Run]:
    """The whole command for one release whose sources are there, first and again."""
    command = [sys.executable, "-m", "verl_doctor.toolkit", "matrix", "--verl", verl]
    command += ["--package", "vllm", "--releases", version, "--format", "json"]
    subprocess.run(command, check=False, capture_output=True, cwd=home)
    forget = Path(os.environ["XDG_CACHE_HOME"], "verl-doctor")
    for kept in [*forget.glob("Verdict/*"), *forget.glob("*Uses/*")]:
        kept.unlink()
    return version, run(command, os.environ, home), run(command, os.environ, home)


if __name__ == "__main__":
    sys.exit(main())
