"""How long the commands take that people call in passing, and `check`, beside another checkout of the doctor and collect_env.

    python tests/bench/bench_start.py ENVIRONMENT/bin/python --before TREE [--only checks] [--runs 15] [--write tests/bench/RESULTS.md]

ENVIRONMENT needs torch; TREE is the doctor at an earlier commit. All are whole processes that take turns, from bytecode that was
compiled before, with a cache of the doctor that two rounds have filled. The table gives medians.
"""

from __future__ import annotations

import argparse
import compileall
import os
import sys
import tempfile
from pathlib import Path

from measure import Run, median, put_table, run, spread

_COLLECT_ENV = "python -m torch.utils.collect_env"
_EMPTY = "an empty Python of the doctor"
_TREE = Path(__file__).parents[2]
_TAB = {
    "_VERL_DOCTOR_COMPLETE": "bash_complete",
    "COMP_WORDS": "verl-doctor explain CUDA1",
    "COMP_CWORD": "2",
}


def main() -> int:
    parser = argparse.ArgumentParser(description="starting the doctor")
    parser.add_argument("python", type=Path)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--only", choices=("lookups", "checks"))
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    python = options.python.absolute()
    trees = {"before": options.before.absolute(), "now": _TREE}
    for folder in (tree / name for tree in trees.values() for name in ("toolkit", "checks", "patches")):
        compileall.compile_dir(folder, quiet=2)
    commands = {
        name: words
        for name, words in _commands(python).items()
        if options.only is None or ("check" in words) is (options.only == "checks")
    }
    runs: dict[tuple[str, str], list[Run]] = {}
    with tempfile.TemporaryDirectory() as home:
        for number in range(options.runs + 2):
            for name, words in commands.items():
                for which, tree in trees.items():
                    done = run(_command(words), _environ(home, which, tree, words), home)
                    if number > 1:
                        runs.setdefault((name, which), []).append(done)
            peers = {
                _COLLECT_ENV: [str(python), "-m", "torch.utils.collect_env"],
                _EMPTY: [sys.executable, "-c", ""],
            }
            for name, command in peers.items():
                done = run(command, {**os.environ, "HOME": home}, home)
                if number > 1:
                    runs.setdefault((name, "now"), []).append(done)
    text = _table(runs)
    print(text)
    if options.write:
        put_table(options.write, text)
    return 0


def _commands(python: Path) -> dict[str, list[str]]:
    script = str(Path(__file__).parent / "grpo.sh")
    return {
        "verl-doctor --help": ["--help"],
        "a TAB behind `explain CUDA1`": [],
        "verl-doctor explain CUDA105": ["explain", "CUDA105"],
        "verl-doctor explain --list": ["explain", "--list"],
        "verl-doctor undo --list": ["undo", "--list"],
        "verl-doctor check": ["check", "--python", str(python)],
        "verl-doctor check, with a launch script": ["check", "--python", str(python), script],
    }


def _command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "verl_doctor.toolkit", *words]


def _environ(home: str, which: str, tree: Path, words: list[str]) -> dict[str, str]:
    caches = {"HOME": home, "XDG_CACHE_HOME": f"{home}/{which}", "XDG_STATE_HOME": home}
    return {**os.environ, **caches, "PYTHONPATH": str(tree / ".dev"), **({} if words else _TAB)}


def _table(runs: dict[tuple[str, str], list[Run]]) -> str:
    peer = runs[_COLLECT_ENV, "now"]
    lines = [
        f"Medians of {len(peer)} runs that took turns, after two that were not counted; {os.cpu_count()} cores; load of the machine",
        f"(mean of a minute) at the end: {os.getloadavg()[0]:.1f}. Seconds of processor are steadier than those of the wall where others",
        "work beside it, and the smallest the steadiest.",
        "",
        "| command | | wall s | min-max | CPU s | min-max | peak MB | CPU in times of collect_env |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (name, which), measured in runs.items():
        ratio = median(measured, "cpu") / median(peer, "cpu")
        lines.append(
            f"| {name} | {which if (name, 'before') in runs else ''} | {median(measured, 'wall'):.2f} | {spread(measured, 'wall')} "
            f"| {median(measured, 'cpu'):.2f} | {spread(measured, 'cpu')} | {median(measured, 'peak_mb'):.0f} | {ratio:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
