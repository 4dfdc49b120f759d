"""What `check`, `check --deep` and `smoke` report about the scoreboard's GPU cases, on a machine with GPUs.

    python tests/bench/bench_gpu_cases.py ENVIRONMENT OUT [--steps check,deep,smoke] [--gpus 0,1] [--limit 1500] CASE...

ENVIRONMENT has torch, verl, vLLM and Ray of the case's releases; this file runs under a Python that has verl-doctor's requirements and
pytest. A case of one GPU gets a GPU of its own, a case of two GPUs gets two, so that as many run side by side as the machine
has room for: two engines that start on one GPU disturb each other. Each case has a home of its own, so nothing is left of an earlier
check. OUT gets a JSON line for each step in `rows.jsonl` and its output in a file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from verdict.build import Builder, environ
from verdict.case import Case, cases

_DOCTOR = (sys.executable, "-m", "verl_doctor.toolkit")
_STEPS = {
    "check": ("check", "{script}"),
    "deep": ("check", "--deep", "{script}"),
    "smoke": ("smoke", "{script}", "--budget", "{budget}s"),
}


@dataclass
class Devices:
    """The GPUs of the machine, each lent to one case at a time."""

    free: set[str]
    returned: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def lent(self, count: int) -> Iterator[str]:
        """The value of CUDA_VISIBLE_DEVICES for a case that needs `count` of them."""
        with self.returned:
            self.returned.wait_for(lambda: len(self.free) >= count)
            taken = sorted(self.free)[:count]
            self.free.difference_update(taken)
        try:
            yield ",".join(taken)
        finally:
            with self.returned:
                self.free.update(taken)
                self.returned.notify_all()


@dataclass(frozen=True)
class Trial:
    """Runs the steps of cases. `ends` is the time of `time.monotonic` after which no step begins."""

    environment: Path
    out: Path
    steps: Sequence[str]
    ends: float
    builder: Builder
    devices: Devices
    writing: threading.Lock = field(default_factory=threading.Lock)

    def run(self, case: Case) -> None:
        """Run each step of a case."""
        with self.devices.lent(2 if case.base.device == "h200-x2" else 1) as visible:
            with self.writing:
                script = self.builder.build(case)
            with tempfile.TemporaryDirectory(prefix="g") as private:
                variables = environ(case, self.environment / "bin" / "python", Path(private))
                del variables["VLLM_CPU_KVCACHE_SPACE"]
                variables |= {
                    "CUDA_VISIBLE_DEVICES": visible,
                    "PYTHONPATH": str(Path(sys.path[0]).parent / ".dev"),
                }
                for step in self.steps:
                    self._step(case, step, script, variables)

    def _step(self, case: Case, step: str, script: Path, variables: dict[str, str]) -> None:
        left = int(self.ends - time.monotonic())
        if left < 10:
            return
        words = [word.format(script=script, budget=left) for word in _STEPS[step]]
        command = [*_DOCTOR, words[0], "--python", str(self.environment), *words[1:], "--json"]
        started = time.monotonic()
        document, errors = (self.out / f"{case.name}.{step}.{kind}" for kind in ("json", "err"))
        with document.open("w") as stdout, errors.open("w") as stderr:
            ended = subprocess.run(
                command, env=variables, stdout=stdout, stderr=stderr, cwd=script.parent, check=False
            )
        row = {
            "case": case.name,
            "step": step,
            "exit": ended.returncode,
            "seconds": round(time.monotonic() - started, 1),
        }
        with self.writing, (self.out / "rows.jsonl").open("a") as rows:
            rows.write(json.dumps(row) + "\n")
            print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="judge and try the scoreboard's GPU cases")
    parser.add_argument("environment", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="+", metavar="CASE")
    parser.add_argument("--steps", default="check,deep,smoke")
    parser.add_argument("--gpus", help="indices of the GPUs to use, such as 0,1; all of them by default")
    parser.add_argument("--limit", type=float, default=1500.0, help="seconds after which no step begins")
    options = parser.parse_args()
    listed = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True)
    every = map(str, range(len(listed.stdout.splitlines())))
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu") as jobs:
        python = options.environment / "bin" / "python"
        trial = Trial(
            options.environment,
            options.out,
            options.steps.split(","),
            time.monotonic() + options.limit,
            Builder(Path(jobs), python),
            Devices(set(options.gpus.split(",") if options.gpus else every)),
        )
        known = cases()
        threads = [threading.Thread(target=trial.run, args=(known[name],)) for name in options.names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
