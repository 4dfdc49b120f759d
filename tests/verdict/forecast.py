"""Forecasts of cases that were run, one JSON line for each case and way, kept in a file as they are made.

    python tests/verdict/forecast.py FILE [CASE...] [--anew] [--minutes 8]

What the file has already is left as it is without --anew, and it ends by itself when its minutes are over: start it until it
reports that nothing is left. Most jobs are built in forks of one process that has imported what takes long. Those whose variables or files
change what is imported, and those of other releases, are built as `check --deep` builds them.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from support.built_together import Order, together
from verdict import case as cases_of
from verdict.case import Case
from verdict.predict import Foretold, Predictor, Prepared

from verl_doctor.toolkit.collectors.configuration.configuration import Configuration
from verl_doctor.toolkit.collectors.configuration.job_processes import JobProcesses
from verl_doctor.toolkit.collectors.construction.construction import Construction
from verl_doctor.toolkit.collectors.construction.construction_collector import judged, request_of
from verl_doctor.toolkit.collectors.installed.trees import VerlTrees
from verl_doctor.toolkit.collectors.launch.environment import Variables
from verl_doctor.toolkit.collectors.launch.launch import Launch
from verl_doctor.toolkit.collectors.variables.child_environ import child_environ
from verl_doctor.toolkit.collectors.variables.job_variables import JobVariables
from verl_doctor.toolkit.facts import Unknown

Way = Literal["at once", "construction"]
WAYS: tuple[Way, ...] = ("at once", "construction")

_TOGETHER = 16  # jobs that share one import: it takes as long as five of them
_CURRENT = "0.9.1"


@dataclass(frozen=True)
class Forecast:
    """What was reported about a case in one way. `stages` are those of the construction that went wrong, `unbuilt` why there is none."""

    case: str
    way: Way
    verdict: str
    codes: tuple[str, ...]
    phases: tuple[str, ...]
    seconds: float
    alone: bool = False
    stages: tuple[str, ...] = ()
    unbuilt: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description="forecasts of cases, in both ways")
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*", metavar="CASE", help="all that were run and decided without any")
    parser.add_argument("--anew", action="store_true", help="also those that the file has")
    parser.add_argument("--minutes", type=float, default=8.0)
    options = parser.parse_args()
    end = time.monotonic() + options.minutes * 60
    known, kept = cases_of.cases(), forecasts(options.file)
    names = options.names or [name for name, one in cases_of.real().items() if one.outcome != "undecided"]
    waiting = [known[name] for name in names if options.anew or (name, WAYS[-1]) not in kept]
    left = len(waiting)
    with tempfile.TemporaryDirectory(prefix="v") as folder:
        for found in made(Path(folder), waiting):
            for forecast in found:
                kept[forecast.case, forecast.way] = forecast
                print(*vars(forecast).values(), flush=True)
            write(options.file, kept.values())
            left -= len({forecast.case for forecast in found})
            if time.monotonic() > end:
                break
    print(f"{left} left", flush=True)


def forecasts(file: Path) -> dict[tuple[str, str], Forecast]:
    """What a file has kept, by case and way."""
    lines = file.read_text("utf-8").splitlines() if file.exists() else ()
    rows = [{key: tuple(v) if isinstance(v, list) else v for key, v in json.loads(line).items()} for line in lines]  # fmt: skip
    return {(row["case"], row["way"]): Forecast(**row) for row in rows}


def write(file: Path, rows: Iterable[Forecast]) -> None:
    """Keep these in place of what the file had."""
    file.write_text("".join(f"{json.dumps(vars(row), ensure_ascii=False)}\n" for row in rows), "utf-8")


def made(folder: Path, cases: Iterable[Case], together: int = _TOGETHER) -> Iterator[Sequence[Forecast]]:
    """The forecasts of these cases, so many cases at a time, each twice: at once and by construction."""
    predictor = Predictor(folder)
    apart: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in cases:
        apart[case.base.device, case.base.group].append(case)
    number = itertools.count()
    for same in apart.values():
        same.sort(key=lambda case: case.base.name)
        if len(same) > 1:
            predictor.foretell(same[0])  # what does not depend on the script is read here, and shared by all
        for start in range(0, len(same), together):
            place = folder / f"c{next(number)}"
            place.mkdir()
            yield _of_some(predictor, same[start : start + together], place)


def _of_some(predictor: Predictor, cases: Sequence[Case], place: Path) -> list[Forecast]:
    with contextlib.ExitStack() as stack:
        prepared = {case.name: stack.enter_context(predictor.prepared(case)) for case in cases}
        found = [_forecast(name, "at once", one.judged()) for name, one in prepared.items()]
        shared = built_together(predictor, prepared, place)
        for name, one in prepared.items():
            begun = time.monotonic()
            built = shared.get(name) or one.look.get(Construction)
            seconds = built.seconds if name in shared else round(time.monotonic() - begun, 2)
            forecast = _forecast(name, "construction", one.with_construction(built).judged())
            found.append(replace(forecast, seconds=seconds, alone=name not in shared, **_of(built)))
    return found


def _forecast(name: str, way: Way, found: Foretold) -> Forecast:
    return Forecast(name, way, found.verdict, found.codes, found.phases, round(found.seconds, 2))


def _of(built: Construction | Unknown) -> Mapping[str, Any]:
    """What is kept of a construction beside the verdict: for whoever looks for what it misses."""
    if isinstance(built, Unknown):
        return {"unbuilt": built.reason}
    usual = {"ok", "not needed", "not there", "not reached"}
    return {
        "stages": tuple(
            f"{stage.stage}: {stage.ended} {stage.kind}: {stage.text[:160]}"
            for stage in built.stages
            if stage.ended not in usual
        )
    }


def built_together(
    predictor: Predictor, prepared: Mapping[str, Prepared], place: Path
) -> dict[str, Construction]:
    """The constructions of those that can share what was imported."""
    orders = {name: order for name, one in prepared.items() if (order := _order(one)) is not None}
    alike: dict[frozenset[tuple[str, str]], dict[str, Order]] = defaultdict(dict)
    for name, order in orders.items():
        alike[_added(prepared[name], order)][name] = order
    found: dict[str, Construction] = {}
    for number, same in enumerate(alike.values()):
        if len(same) > 1:
            folder = place / f"{number}"
            folder.mkdir()
            found |= together(predictor.python, same, folder, next(iter(same.values())).environ)
    return {name: judged(one, *_facts(prepared[name], Configuration, Launch)) for name, one in found.items()}


def _order(one: Prepared) -> Order | None:
    """What a fork is to build; None for a job that needs a process of its own, and for one that cannot be built."""
    machine, case = one.session.machine, one.case
    facts = _facts(one, Configuration, Launch, VerlTrees, Variables, JobVariables)
    (processes,) = _facts(one, JobProcesses)
    if any(isinstance(fact, Unknown) for fact in facts) or case.base.group != _CURRENT or _is_imported(case):
        return None
    configuration, launch, trees, variables, job = facts
    environ = child_environ(machine, variables, job)
    request = request_of(configuration, launch, trees, machine, processes)
    if isinstance(request, Unknown):
        return None
    return Order(request, environ)


def _added(one: Prepared, order: Order) -> frozenset[tuple[str, str]]:
    """What the job's processes have in their variables beside the shell's: some libraries read them when they are imported."""
    return frozenset((order.environ or {}).items() - one.session.machine.environ.items())


def _is_imported(case: Case) -> bool:
    """Whether the job's folder has modules that no setting names: they may come before a library's."""
    values = " ".join(case.set.values())
    return any(name.endswith(".py") and f"<job>/{name}" not in values for name in case.files)


def _facts(one: Prepared, *wanted: type) -> list[Any]:
    return [one.look.get(fact) for fact in wanted]


if __name__ == "__main__":
    main()
