"""How long a job waits at the gate: `guard` beside an interpreter that does nothing, in one run on one machine.

    python tests/bench/bench_guard.py ENVIRONMENT [--write tests/bench/GUARD.md]

ENVIRONMENT is one that a job would run in (verl, vLLM, torch, Ray). The agreement is made of it, and holds. The commands take
turns; the first round warms the page cache and is not counted. `at once` are 64 gates started together, as by the ranks of a
job on a shared disk: the seconds until the last is through.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from measure import Run, median, run, spread

_NOTHING = "python -c pass"
_GATE = "verl-doctor guard"
_REPAIRING = "verl-doctor guard --apply, nothing lost"
_AT_ONCE = 64


def main() -> int:
    parser = argparse.ArgumentParser(description="the gate in front of a job")
    parser.add_argument("environment", type=Path)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    doctor = [sys.executable, "-m", "verl_doctor.toolkit", "guard"]
    gate = [*doctor, "--python", str(options.environment.absolute())]
    commands = {_NOTHING: [sys.executable, "-c", "pass"], _GATE: gate, _REPAIRING: [*gate, "--apply"]}
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "XDG_STATE_HOME": home}
        subprocess.run([*gate, "--agree"], cwd=home, env=environ, check=True, stderr=subprocess.DEVNULL)
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for number in range(options.runs + 1):
            for name, command in commands.items():
                done = run(command, environ, home)
                if done.code:
                    print(
                        f"{name} ended with {done.code}: is anything lost in {options.environment}?",
                        file=sys.stderr,
                    )
                    return 1
                if number:
                    runs[name].append(done)
        together = [_together(gate, environ, home) for _ in range(3)]
    text = _table(runs, together, options.environment)
    print(text)
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    return 0


def _together(command: Sequence[str], environ: Mapping[str, str], cwd: str) -> float:
    started = time.perf_counter()
    gates = [subprocess.Popen(command, env=dict(environ), cwd=cwd) for _ in range(_AT_ONCE)]
    codes = {gate.wait() for gate in gates}
    assert codes == {0}, codes
    return time.perf_counter() - started


def _table(runs: Mapping[str, Sequence[Run]], together: Sequence[float], environment: Path) -> str:
    nothing = median(runs[_NOTHING], "wall")
    counts = len(next(iter(runs.values())))
    machine = (
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the end"
    )
    lines = [
        "# The gate in front of a job",
        "",
        f"`python tests/bench/bench_guard.py {environment.name}`: {counts} runs each, taking turns, warm; {machine}.",
        "",
        "| command | seconds (median) | from-to | times an empty Python | CPU seconds |",
        "|---|---|---|---|---|",
    ]
    for name, taken in runs.items():
        wall = median(taken, "wall")
        cells = (f"{wall:.3f}", spread(taken, "wall"), f"{wall / nothing:.1f}", f"{median(taken, 'cpu'):.3f}")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    each = ", ".join(f"{seconds:.1f} s" for seconds in together)
    lines += ["", f"{_AT_ONCE} gates at once, until the last is through: {each}.", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
