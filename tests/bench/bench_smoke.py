"""What rung 1 of `verl-doctor smoke` takes, beside the processors' seconds of its imports one after the other.

    python tests/bench/bench_smoke.py ENVIRONMENT/bin/python [--rounds 3] [--write tests/bench/SMOKE.md]

In each round the same children run one after the other, which tells the seconds of processor that each takes, and then the rung. The bound
is those seconds over the cores that may be used, or the longest child where that is more: an import is not divided. A machine
that does other things too makes the ratio worse; the load is written down.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from verl_doctor.toolkit.collectors.installed.interpreter import Interpreter
from verl_doctor.toolkit.commands.smoke.child import script
from verl_doctor.toolkit.commands.smoke.failure import failed
from verl_doctor.toolkit.commands.smoke.folder import private_folder
from verl_doctor.toolkit.commands.smoke.rung import Outcome, Stage
from verl_doctor.toolkit.commands.smoke.rungs import imports
from verl_doctor.toolkit.engine.session import open_session
from verl_doctor.toolkit.facts import Unknown
from verl_doctor.toolkit.probes import smoke_imports
from verl_doctor.toolkit.target import Options, UsageError


class CannotMeasureError(Exception):
    """The environment does not import all that is to be timed: one sentence."""


def main() -> None:
    parser = argparse.ArgumentParser(description="rung 1 beside the CPU seconds of its imports")
    parser.add_argument("python", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    try:
        text = _measured(options.python.absolute(), options.rounds)
    except (CannotMeasureError, UsageError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    print(text)
    if options.write:
        options.write.write_text(text + "\n")


def _measured(python: Path, rounds: int) -> str:
    session = open_session(Options(python=python))
    facts = session.look()
    interpreter = facts.get(Interpreter)
    if isinstance(interpreter, Unknown):
        raise CannotMeasureError(f"{python} cannot be examined: {interpreter.reason}")
    with tempfile.TemporaryDirectory() as logs, private_folder(session.machine) as folder:
        stage = Stage(
            machine=session.machine,
            target=session.target,
            facts=facts,
            python=interpreter.executable,
            environ=session.machine.environ,
            folder=folder,
            logs=Path(logs),
            device="cpu",
            budget=3600.0,
        )
        rows = [_round(stage) for _ in range(rounds)]
        lanes = imports.lanes_for(stage, imports.cores(stage))
    return _table(rows, lanes, imports.cores(stage))


def _round(stage: Stage) -> tuple[float, float, float, float]:
    """CPU seconds of all and of the longest child, the rung's wall seconds, and the load before it."""
    costs = []
    for modules in imports.lanes_for(stage, imports.cores(stage)):
        ran = stage.run(script(stage.python, smoke_imports, "cpu", *modules))
        if ran.code != 0:
            _refuse(stage, failed(ran, {"": ""}))
        costs.append(float(ran.documents[-1]["cpu"]))
    load = os.getloadavg()[0]
    begun = time.monotonic()
    outcome = imports.climb(stage)
    if outcome.status != "passed":
        _refuse(stage, outcome)
    return sum(costs), max(costs), time.monotonic() - begun, load


def _refuse(stage: Stage, outcome: Outcome) -> NoReturn:
    raise CannotMeasureError(
        f"rung 1 breaks with {stage.python}, so there is nothing to time: {outcome.cause}; "
        "name an environment in which it holds"
    )


def _table(rows: list[tuple[float, float, float, float]], lanes: list[tuple[str, ...]], cores: int) -> str:
    lines = [
        "# Rung 1: imports side by side",
        "",
        f"{cores} cores, {platform.machine()}, Python {platform.python_version()}; processes: "
        + "; ".join(" then ".join(modules) for modules in lanes)
        + ".",
        "",
        "| round | CPU s of the imports | the longest process | over the cores | rung, wall s | ratio | to what is possible | load before |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for number, (cpu, longest, wall, load) in enumerate(rows, 1):
        share = cpu / cores
        possible = max(share, longest)
        lines.append(
            f"| {number} | {cpu:.1f} | {longest:.1f} | {share:.1f} | {wall:.1f} | {wall / share:.2f} | {wall / possible:.2f} | {load:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
